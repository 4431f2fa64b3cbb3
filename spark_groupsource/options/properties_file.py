"""Reads Java properties files: client settings (`--command-config`), as for Kafka's own tools, and options (`check --conf`).

A value may refer to an environment variable as `${env:NAME}`, as with Kafka's EnvVarConfigProvider (KIP-887), so no file has to
contain a password. Variables in `kafka.client.rack` are not replaced here, because each executor has its own rack.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from spark_groupsource.errors import OptionError
from spark_groupsource.kafka_settings.secrets import shown_name
from spark_groupsource.kafka_settings.tables import LEFT_OUT_IF_UNSET

_ENTRY = re.compile(r"(?P<key>(?:\\.|[^\\=: \t\f])*)(?P<separator>[ \t\f]*[=:]?[ \t\f]*)(?P<value>.*)", re.DOTALL)
"""A key, followed by `=`, `:` or blanks. A character after a backslash is always part of the key."""
_ESCAPE = re.compile(r"\\(?:u(?P<unicode>[0-9a-fA-F]{4})|(?P<char>.))", re.DOTALL)
_FROM_ENVIRONMENT = re.compile(r"\$\{env:(?P<name>\w+)\}")
_MALFORMED = re.compile(r"\$\{env:", re.IGNORECASE)
_OF_EACH_PROCESS = frozenset("kafka." + name for name in LEFT_OUT_IF_UNSET)
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_properties(path: str | os.PathLike[str]) -> dict[str, str]:
    """Read a Java properties file, such as a query's options: `.options(**read_properties("orders.properties"))`.

    The file is read as UTF-8, in the same way as `java.util.Properties.load`, except that a name without a value is an error,
    because it may be the rest of a password or key that was pasted across several lines. If a name occurs twice, the last value
    wins. `${env:NAME}` in a value is replaced with that environment variable. In `kafka.client.rack`, each executor replaces
    it.

    Args:
        path: The file. `groupkafka check --conf` reads its file in the same way.

    Returns:
        The values by key.

    Raises:
        OptionError: The file cannot be read, a line has a name without a value, or a variable is malformed or not set. The
            message shows no values.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise OptionError(f"{path} cannot be read: {reason}. Check the path and the file.") from None
    return {key: _with_environment(key, value) for key, value in parse_properties(text, path).items()}


def _with_environment(key: str, value: str) -> str:
    if key.strip().lower() in _OF_EACH_PROCESS:
        return value
    if _MALFORMED.search(_FROM_ENVIRONMENT.sub("", value)):
        raise OptionError(
            f"{shown_name(key)} refers to an environment variable in the wrong form: write ${{env:NAME}}, where NAME contains "
            "only letters, digits and _."
        )
    missing = [name for name in _FROM_ENVIRONMENT.findall(value) if name not in os.environ]
    if missing:
        raise OptionError(
            f"{shown_name(key)} refers to the environment variable {missing[0]}, which is not set: set the variable, or write "
            "the value into the file."
        )
    return _FROM_ENVIRONMENT.sub(lambda match: os.environ[match["name"]], value)


def parse_properties(text: str, path: str | os.PathLike[str]) -> dict[str, str]:
    """Parse the contents of a properties file. `path` names the file in error messages."""
    properties: dict[str, str] = {}
    pending = ""
    # `splitlines` would also split at characters that a password may contain. The last line may end with a backslash.
    for number, line in enumerate([*re.split(r"\r\n|\r|\n", text), ""], start=1):
        stripped = line.lstrip(" \t\f")
        if not pending:
            if not stripped or stripped[0] in "#!":
                continue
            began = number
        pending += stripped
        # A line that ends with an odd number of backslashes continues on the next line.
        if (len(pending) - len(pending.rstrip("\\"))) % 2:
            pending = pending[:-1]
            continue
        match = _ENTRY.match(pending)
        if match is None or not (match["separator"].strip() or match["value"]):
            raise OptionError(
                f"{path}, line {began}: there is no `=`. Write `name = value`. If the line belongs to the previous value, end "
                "each line of that value except the last with a backslash, or put a key or certificate into its own file "
                "(...location)."
            )
        properties[_unescaped(match["key"])] = _unescaped(match["value"])
        pending = ""
    return properties


def _unescaped(text: str) -> str:
    plain = _ESCAPE.sub(
        lambda match: chr(int(match["unicode"], 16)) if match["unicode"] else _CONTROL.get(match["char"], match["char"]), text
    )
    # Java writes characters such as emoji as two escapes, one for each half of a surrogate pair.
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
