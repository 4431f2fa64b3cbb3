"""Spark hides the traceback of the user's own mistakes, and of nothing else."""

from __future__ import annotations

import os

import pytest

from spark_groupsource.errors import BrokerUnavailable, OptionError, SchemaError
from spark_groupsource.spark.short_errors import HIDE_TRACEBACK, shown_alone


@pytest.mark.parametrize("kind", [OptionError, SchemaError])
def test_a_mistake_of_the_user_is_shown_alone(kind: type[Exception]) -> None:
    with pytest.raises(kind, match="wrong"), shown_alone():
        raise kind("wrong")
    assert os.environ[HIDE_TRACEBACK]


@pytest.mark.parametrize("kind", [BrokerUnavailable, ValueError])
def test_other_errors_keep_their_traceback(kind: type[Exception]) -> None:
    with pytest.raises(kind, match="wrong"), shown_alone():
        raise kind("wrong")
    assert HIDE_TRACEBACK not in os.environ
