"""The functions that are declared for Python are those that the C has, and that it is given."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from spark_groupsource.native import functions
from spark_groupsource.native.functions import KAFKA_FUNCTIONS, OUR_FUNCTIONS
from spark_groupsource.native.structs import FunctionsStruct, ProducerFunctionsStruct


def test_all_that_our_c_exports_are_declared() -> None:
    texts = [file.read_text(encoding="utf-8") for file in Path(functions.__file__).parent.glob("*.c")]
    exported = [name for text in texts for name in re.findall(r"^EXPORT .*?\bgs_(\w+)\(", text, re.MULTILINE)]
    assert sorted(exported) == sorted(OUR_FUNCTIONS)


@pytest.mark.parametrize("struct", [FunctionsStruct, ProducerFunctionsStruct])
def test_what_our_c_calls_of_librdkafka_is_declared(struct: type[FunctionsStruct | ProducerFunctionsStruct]) -> None:
    assert {name for name, *_ in struct._fields_} <= KAFKA_FUNCTIONS.keys()
