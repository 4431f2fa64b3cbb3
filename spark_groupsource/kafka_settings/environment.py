"""Replaces `${env:NAME}` in settings that may differ between hosts, in each process that creates a client.

The driver sends the settings as the user wrote them. An option must not reveal a process's environment, so a variable's value
never appears in a log or an error.
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
"""The minimum length of a masked value. Shorter ones are not secrets, and masking a single letter would make logs unreadable."""

_put_in: set[str] = set()
"""The environment variables' values that this process has put into settings."""


def problem(name: str, value: str) -> str | None:
    """Return what is wrong with `${env:NAME}` in a setting, or `None` if it is correct or the setting takes no variables.

    Args:
        name: The name of a librdkafka setting.
        value: Its value.
    """
    if name in PER_HOST and _BEGIN in _VARIABLE.sub("", value):
        return "write ${env:NAME}, where NAME contains only letters, digits and _, and does not begin with a digit"
    return None


def resolved(settings: Mapping[str, Any], *, reads: bool = False) -> dict[str, Any]:
    """Return a client's settings with variables replaced from this process's environment.

    Args:
        settings: The finished settings, as the driver sent them.
        reads: Whether the client fetches records. Only then does a missing rack matter, and cause a warning.

    Raises:
        OptionError: A variable in a file setting is not set in this process, or is empty.
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
                "process, or is empty. The client will not connect, because without this file the connection would be less "
                "secure than the options require. Set the variable on this host."
            )
    return found


def without_environment(text: str) -> str:
    """Mask the environment variables' values that this process has put into settings, and return the text."""
    for value in sorted(_put_in, key=len, reverse=True):
        text = text.replace(value, MASK)
    return text


class EnvironmentFilter(logging.Filter):
    """Masks values from the environment in log lines, because librdkafka's most detailed log level includes all settings."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Mask the values in a log record, and let it pass."""
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
    """Warn, once per process and variable, that consumers have no rack."""
    log.warning(
        "The environment variable %s in kafka.client.rack is not set in this process, or is empty, so its consumers have no "
        "rack. They read from the partitions' leaders, no matter which zones the leaders are in. No record is affected. To read "
        "from the nearest replica, set the variable on this host.",
        variable,
    )
