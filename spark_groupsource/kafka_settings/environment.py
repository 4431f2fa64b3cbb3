"""`${env:NAME}` in a setting that may differ by host: each process replaces it where it makes a client.

The driver sends the settings as the user wrote them. So an option must not show what a process has in its environment: a value
that was put in for a variable is in no log and in no error.
"""

from __future__ import annotations

import functools
import logging
import os
import re
from collections.abc import Mapping
from typing import Any

from spark_groupsource.errors import OptionError
from spark_groupsource.kafka_settings.secrets import MASK
from spark_groupsource.kafka_settings.tables import LEFT_OUT_IF_UNSET, PER_HOST

log = logging.getLogger(__name__)

_BEGIN = "${env:"
_VARIABLE = re.compile(r"\$\{env:(?P<name>[A-Za-z_][A-Za-z0-9_]*)\}")

_SHORTEST_MASKED = 4
"""A shorter value is no secret, and masking it would make lines unreadable: it may be one letter."""

_put_in: set[str] = set()
"""The values that this process has put into settings."""


def problem(name: str, value: str) -> str | None:
    """Return why `${env:NAME}` in this setting is malformed; `None` if it is not, or if the setting takes the text as it is.

    Args:
        name: The name of a setting of librdkafka.
        value: Its value.
    """
    if name in PER_HOST and _BEGIN in _VARIABLE.sub("", value):
        return "an environment variable is written as ${env:NAME}; its name has letters, digits and _, and begins with no digit"
    return None


def resolved(settings: Mapping[str, Any], *, reads: bool = False) -> dict[str, Any]:
    """Return a client's settings with the values of the environment variables of this process.

    Args:
        settings: The finished settings, as the driver sent them.
        reads: Whether the client fetches records. Only then it matters that it has no rack, and there is a warning.

    Raises:
        OptionError: A file's variable is not set here, or it is empty.
    """
    found = dict(settings)
    for name in PER_HOST & settings.keys():
        text = settings[name]
        unset = [variable for variable in _VARIABLE.findall(text) if not os.environ.get(variable)]
        if not unset:
            found[name] = _with_values(text)
        elif name in LEFT_OUT_IF_UNSET:
            del found[name]
            if reads:
                _warn_of_no_rack(unset[0])
        else:
            raise OptionError(
                f"kafka.{name} (librdkafka's name) refers to the environment variable {unset[0]}, which is not set in this "
                "process, or is empty. Set it on this host: without the file, the connection is less safe than the options say."
            )
    return found


def without_environment(text: str) -> str:
    """Return the text with the values masked that this process has put into settings."""
    for value in sorted(_put_in, key=len, reverse=True):
        text = text.replace(value, MASK)
    return text


class EnvironmentFilter(logging.Filter):
    """Masks those values in the lines of a logger. At its most detailed level librdkafka writes all its settings."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Change the record if it has such a value, and let it pass."""
        if _put_in:
            text = record.getMessage()
            masked = without_environment(text)
            if masked != text:
                record.msg, record.args = masked, ()
        return True


def _with_values(text: str) -> str:
    def value(match: re.Match[str]) -> str:
        found = os.environ[match["name"]]
        if len(found) >= _SHORTEST_MASKED:
            _put_in.add(found)
        return found

    return _VARIABLE.sub(value, text)


@functools.cache
def _warn_of_no_rack(variable: str) -> None:
    """Warn once in each process for each variable."""
    log.warning(
        "The environment variable %s of kafka.client.rack is not set in this process, or is empty. Its consumers have no rack. "
        "They read from the leaders of the partitions, in whatever zone these are.",
        variable,
    )
