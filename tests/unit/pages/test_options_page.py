"""docs/options.md: its rows are what the fields of the options say, and what the source does."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple

import pytest

from spark_groupsource.errors import OptionError
from spark_groupsource.kafka_settings.translation import translate
from spark_groupsource.options.model import DESCRIBED, Options
from tests.support.options import BASE
from tools.pages import with_options_of_sink, with_rows

PAGE = (Path(__file__).parents[3] / "docs" / "options.md").read_text(encoding="utf-8")

Use = Literal["stream", "batch"]


class Row(NamedTuple):
    """One row of the page's tables."""

    option: str
    default: str
    use: str
    meaning: str


ROWS = {
    row.option: row for row in (Row(*cells) for cells in re.findall(r"^\| `(.+?)` \| (.*?) \| (.+?) \| (.+) \|$", PAGE, re.M))
}
SETTINGS = sorted(ROWS.keys() - DESCRIBED.keys() - {"kafka.*"})
"""The `kafka.*` options of the page, which the model translates."""


def parsed(use: Use | None = None, options: Mapping[str, str] | None = None) -> Options:
    return Options.parse({**BASE, **(options or {})}, use)


def written(default: str) -> str:
    """The default's text without the page's back quotes."""
    found = re.fullmatch(r"`([^`]+)`", default)
    assert found is not None, f"{default} is not one value"
    return found[1]


def client_settings() -> dict[str, str]:
    """What the clients are created with when the user sets nothing."""
    return {**parsed().fetch_settings().client, **parsed().member_settings()}


def test_every_line_of_a_table_is_a_row() -> None:
    lines = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| option |")]
    assert len(lines) == len(ROWS) > 35


def test_the_rows_of_the_options_are_what_their_fields_say() -> None:
    assert with_rows(PAGE) == PAGE, "run `make pages`"
    assert all(option.startswith("kafka.") for option in SETTINGS)


def test_the_table_of_the_sinks_options_is_what_their_fields_say() -> None:
    page = (Path(__file__).parents[3] / "docs" / "sink.md").read_text(encoding="utf-8")
    assert with_options_of_sink(page) == page, "run `make pages`"


def test_the_start_of_a_stream_and_of_a_batch_read_are_the_models() -> None:
    stream, batch = (part.split() for part in ROWS["startingOffsets"].default.split(", "))
    assert (stream[0], batch[0]) == ("streams", "batch")
    assert written(stream[1]) == parsed("stream").stream_start
    assert written(batch[1]) == parsed("batch").batch_start


@pytest.mark.parametrize("option", SETTINGS)
def test_the_default_of_a_kafka_setting_is_what_the_clients_get(option: str) -> None:
    default = ROWS[option].default
    name = option.removeprefix("kafka.")
    if option in BASE:
        assert default == "required"
        with pytest.raises(OptionError, match=f"{re.escape(option)} is missing"):
            Options.parse({key: value for key, value in BASE.items() if key != option})
    elif default == "none":
        assert name not in client_settings()
    else:
        assert translate({name: written(default)}).items() <= client_settings().items()


def test_the_page_repeats_the_defaults_that_differ_from_kafkas() -> None:
    said = re.findall(r"^- `(kafka\.[a-z.]+)`\s+is\s+(\d+),", PAGE, re.MULTILINE)
    assert len(said) == 4
    assert all(written(ROWS[option].default) == value for option, value in said)
    assert {option for option, row in ROWS.items() if "Kafka's default is" in row.meaning} == {option for option, _ in said}


@pytest.mark.parametrize("option", sorted(DESCRIBED))
def test_an_option_is_accepted_where_its_row_says(option: str) -> None:
    row = ROWS[option]
    beside = {"metrics.port": "0"} if option == "metrics.host" else {}
    given = {**BASE, **beside, option: example(row)}
    if option == "subscribePattern":
        del given["subscribe"]
    if row.use == "batch":
        with pytest.raises(OptionError, match=option):
            Options.parse(given, "stream")
    else:
        Options.parse(given, "stream")
    if option != "commitOffsets":  # it needs another option as well
        # A batch read takes no other start without the group's commits.
        without_effect = Options.parse({**given, "startingOffsets": "earliest"}, "batch").without_effect_on_a_batch
        assert row.use == "streams" or option not in without_effect


def example(row: Row) -> str:
    """A value of the option: its default, or one of the right kind."""
    examples = {
        "startingOffsets": "earliest",
        "startingOffsetsByTimestamp": '{"orders":{"0":1}}',
        "endingOffsetsByTimestamp": '{"orders":{"0":1}}',
        "heldClaims": "hold",
        "subscribe": "orders",
        "subscribePattern": "orders",
    }
    return examples.get(row.option) or ("1" if row.default == "none" else written(row.default))


def test_a_batch_read_ignores_what_the_page_says() -> None:
    (ignored,) = re.findall(r"^- A batch read ignores (.*?), with a warning", PAGE, re.DOTALL | re.MULTILINE)
    named = re.findall(r"`([^`]+)`", ignored)
    assert sorted(named) == sorted(name for name, about in DESCRIBED.items() if about.warned_of)
    given = dict.fromkeys(named, "1")
    assert sorted(parsed("batch", given).without_effect_on_a_batch) == sorted(named)
    assert all(ROWS[name].use == "streams" for name in named)
