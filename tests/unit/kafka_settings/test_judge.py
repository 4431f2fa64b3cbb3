"""What librdkafka itself says of a value."""

from __future__ import annotations

import re
from pathlib import Path

from spark_groupsource.kafka_settings import judge
from spark_groupsource.kafka_settings.tables import (
    NAMES,
)
from tests.support.kafka_settings import properties_of_the_installed_library


def test_librdkafkas_limits_are_kept_and_a_number_that_it_would_misread_is_refused(tmp_path: Path) -> None:
    for name, (_, allowed) in properties_of_the_installed_library(tmp_path).items():
        limits = re.fullmatch(r"(-?\d+)\.\.(\d+)", allowed)
        if name not in NAMES or limits is None or name == "fetch.min.bytes":  # librdkafka documents another range for it
            continue
        low, high = int(limits[1]), int(limits[2])
        assert judge.refusal(name, str(low)) is judge.refusal(name, str(high)) is None
        assert f"outside allowed range {low}..{high}" in str(judge.refusal(name, str(low - 1))), name
        for misread in (f"{high}s", "1.5", "0x10", str(2**32 + high), ""):
            assert judge.refusal(name, misread), (name, misread)
