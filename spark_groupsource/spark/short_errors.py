"""Errors of the user's own input are shown without a traceback: their text has all that there is to know.

A process of Spark passes an error on to the JVM as text, and ends. Spark shows that in its log, and again at the user's call.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"
"""What PySpark 4.0 and later look up in the environment when they make the text (`handle_worker_exception`)."""


@contextmanager
def shown_alone() -> Iterator[None]:
    """Have Spark show an OptionError or a SchemaError without its traceback. Other errors keep theirs."""
    try:
        yield
    except Exception as error:
        from spark_groupsource.errors import OptionError, SchemaError

        if isinstance(error, OptionError | SchemaError):
            os.environ[HIDE_TRACEBACK] = "true"
        raise
