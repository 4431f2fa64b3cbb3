"""The tests. Their shared helpers assert, and say what differs."""

import pytest

pytest.register_assert_rewrite("tests.spark.pairs", "tests.spark.queries")
