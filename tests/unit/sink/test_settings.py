"""The settings that travel to the tasks of the sink."""

from __future__ import annotations

import pickle

from spark_groupsource.sink.names import Names
from spark_groupsource.sink.settings import SinkSettings

QUERY = "5e0bd5ce-5a4a-4d49-a9e1-f1d5a8f9a1d5"


def test_they_can_be_pickled_and_show_no_secret() -> None:
    settings = SinkSettings({"sasl.password": "open-sesame"}, {"sasl.password": "open-sesame"}, "invoices")
    assert pickle.loads(pickle.dumps(settings)) == settings  # noqa: S301
    assert "open-sesame" not in repr(settings)


def test_the_names_of_a_query_have_the_prefix_and_the_topic() -> None:
    assert SinkSettings({}, {}, "invoices", prefix="billing").names(QUERY) == Names.of("billing", QUERY, "invoices")
    assert SinkSettings({}, {}, prefix="billing").names(QUERY) == Names.of("billing", QUERY, None)
