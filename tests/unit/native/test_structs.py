"""The structs are as large in Python as in C: one that is smaller would be written beyond its end."""

from __future__ import annotations

import ctypes

import pytest

from spark_groupsource.native.libraries import load_libraries, why_unavailable
from spark_groupsource.native.structs import IntakeStruct, OutletStruct, RowsStruct

pytestmark = pytest.mark.skipif(why_unavailable() is not None, reason=f"no native reader: {why_unavailable()}")


@pytest.mark.parametrize(("name", "struct"), [("intake", IntakeStruct), ("outlet", OutletStruct), ("rows", RowsStruct)])
def test_the_structs_are_as_large_as_in_c(name: str, struct: type[ctypes.Structure]) -> None:
    assert getattr(load_libraries().ours, f"size_of_{name}")() == ctypes.sizeof(struct)
