"""Reads Java properties files: client settings (`--command-config`) as in Kafka's own tools, and options (`check --conf`).

A value may refer to an environment variable as `${env:NAME}`, as with Kafka's EnvVarConfigProvider (KIP-887), so that no file
needs to contain a password. Only the rack (`kafka.client.rack`) is not replaced, because each process of the query has its own.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from spark_groupsource.errors import OptionError
from spark_groupsource.kafka_settings.secrets import shown_name
from spark_groupsource.kafka_settings.tables import LEFT_OUT_IF_UNSET

_ENTRY = re.compile(r"(?P<key>(?:\\.|[^\\=: \t\f])*)(?P<separator>[ \t\f]*[=:]?[ \t\f]*)(?P<value>.*)", re.DOTALL)
"""A key, followed by `=`, `:` or blanks. A character after a backslash is always a part of the key."""
_ESCAPE = re.compile(r"\\(?:u(?P<unicode>[0-9a-fA-F]{4})|(?P<char>.))", re.DOTALL)
_FROM_ENVIRONMENT = re.compile(r"\$\{env:(?P<name>\w+)\}")
_MALFORMED = re.compile(r"\$\{env:", re.IGNORECASE)
_OF_EACH_PROCESS = frozenset("kafka." + name for name in LEFT_OUT_IF_UNSET)
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_properties(path: str | os.PathLike[str]) -> dict[str, str]:
    """Read a Java properties file, for example the options of a query: `.options(**read_properties("orders.properties"))`.

    The file is read like `java.util.Properties.load` does, in UTF-8, except that a name without a value is an error: it may be
    the rest of a password or of a key that was pasted over several lines. If a name is duplicated, its last value counts.
    `${env:NAME}` in a value is replaced by that environment variable, except in `kafka.client.rack`, where each executor does it.

    Args:
        path: the file. `groupkafka check --conf` reads it in the same way.

    Returns:
        Each key with its value.

    Raises:
        OptionError: The file cannot be read, a line has a name without a value, or a variable is not written as `${env:NAME}` or
            not set. The text shows no value.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise OptionError(f"{path} cannot be read: {reason}.") from None
    return {key: _with_environment(key, value) for key, value in parse_properties(text, path).items()}


def _with_environment(key: str, value: str) -> str:
    if key.strip().lower() in _OF_EACH_PROCESS:
        return value
    if _MALFORMED.search(_FROM_ENVIRONMENT.sub("", value)):
        raise OptionError(
            f"{shown_name(key)} refers to an environment variable in a wrong form: write ${{env:NAME}}; its name has "
            "letters, digits and _."
        )
    missing = [name for name in _FROM_ENVIRONMENT.findall(value) if name not in os.environ]
    if missing:
        raise OptionError(
            f"{shown_name(key)} refers to the environment variable {missing[0]}, which is not set: set it, or write the value "
            "into the file."
        )
    return _FROM_ENVIRONMENT.sub(lambda match: os.environ[match["name"]], value)


def parse_properties(text: str, path: str | os.PathLike[str]) -> dict[str, str]:
    """Return the entries of a properties file. The error about a line without a value names `path`."""
    properties: dict[str, str] = {}
    pending = ""
    # Do not use `splitlines`, which also splits at characters that a password may have. The last line may end with a backslash.
    for number, line in enumerate([*re.split(r"\r\n|\r|\n", text), ""], start=1):
        stripped = line.lstrip(" \t\f")
        if not pending:
            if not stripped or stripped[0] in "#!":
                continue
            began = number
        pending += stripped
        # After an odd number of backslashes, the entry continues in the next line.
        if (len(pending) - len(pending.rstrip("\\"))) % 2:
            pending = pending[:-1]
            continue
        match = _ENTRY.match(pending)
        if match is None or not (match["separator"].strip() or match["value"]):
            raise OptionError(
                f"{path}, line {began}: there is no `=`. Write `name = value`. If it is a part of the value above, end each line "
                "of that value but its last with a backslash; a key or certificate may be in a file of its own (...location)."
            )
        properties[_unescaped(match["key"])] = _unescaped(match["value"])
        pending = ""
    return properties


def _unescaped(text: str) -> str:
    plain = _ESCAPE.sub(lambda match: chr(int(match["unicode"], 16)) if match["unicode"] else _plain(match["char"]), text)
    # Java writes a character such as an emoji as two escapes, one for each half of a surrogate pair.
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _plain(char: str) -> str:
    return _CONTROL.get(char, char)
