"""What a page and an error say of an option."""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from spark_groupsource.errors import OptionError
from spark_groupsource.options.described import QueryOptions, described, option
from spark_groupsource.options.model import Options
from spark_groupsource.options.sink_model import SinkOptions


@pytest.mark.parametrize("model", [Options, SinkOptions])
def test_every_option_has_a_section_and_its_meaning_in_sentences(model: type[BaseModel]) -> None:
    about = described(model)
    assert len(about) > 5
    assert [name for name, each in about.items() if not each.section or not each.meaning.endswith(".")] == []


class Example(BaseModel):
    """Two options, of which one is for batch reads only."""

    limit: int = option("limit", "5", section="Limits", meaning="How many.")
    end: str | None = option("end", section="Limits", meaning="Where it ends.", refused_by_streams="a stream has no end")
    internal: int = 0


def test_an_option_is_described_as_a_user_would_write_it() -> None:
    about = described(Example)
    assert about.keys() == {"limit", "end"}
    assert (about["limit"].default, about["limit"].use) == ("`5`", "both")
    assert (about["end"].default, about["end"].use) == ("none", "batch")


def test_a_wrong_value_is_a_sentence_with_the_option_and_the_value_unless_it_is_a_secret() -> None:
    class Secret(QueryOptions):
        ignored = frozenset[str]()
        writes = True
        limit: int = option("limit", "5", section="Limits", meaning="How many.")
        password: int = option("sasl.password", section="Logins", meaning="The password.")

    with pytest.raises(OptionError) as refused:
        Secret.parse({"kafka.bootstrap.servers": "a:1", "limit": "many", "sasl.password": "hunter2"})
    limit, password = refused.value.problems
    assert limit.startswith("limit = 'many': ")
    assert password.startswith("sasl.password = ********: ")
