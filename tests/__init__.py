"""The tests. Their shared helpers assert, and say what differs."""

import pytest

pytest.register_assert_rewrite("tests.support.pairs", "tests.support.queries")
