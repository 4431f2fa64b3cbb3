"""A group's name with blanks around it is allowed, and one is told of it."""

from __future__ import annotations

import pytest

from spark_groupsource.spark.group_name import warn_of_blanks


def test_blanks_around_the_name_are_worth_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    warn_of_blanks("billing of orders")
    assert not caplog.messages
    warn_of_blanks(" billing")
    (said,) = caplog.messages
    assert said.startswith("kafka.group.id = ' billing' has blanks around the name")
    assert said.endswith("another group than 'billing'")
