"""What librdkafka itself says of one setting: whether there is one of this name, and whether it takes the value.

So a setting that only a newer librdkafka knows works without a change here. Nothing is started for it: the
properties end with one that does not exist, so no client comes of them.
"""

from __future__ import annotations

import re

from confluent_kafka import Consumer, KafkaException

from spark_groupsource.kafka_settings.secrets import without_secrets
from spark_groupsource.kafka_settings.tables import CHOICES

_END = "groupkafka.end"

_MOST = 2**31 - 1


def exists(name: str) -> bool:
    """Return whether the installed librdkafka has a setting of this name."""
    return not (_said(name, "1") or "").startswith("No such configuration property")


def refusal(name: str, value: str) -> str | None:
    """Return why librdkafka does not take this value, or `None` if it takes it. The text holds no secret.

    Args:
        name: The name of a setting of librdkafka.
        value: Its value, without blanks at its ends.
    """
    if not value.strip():
        return "a value that is not empty is expected"
    if name in CHOICES:
        return None if value in CHOICES[name] else f"{' or '.join(CHOICES[name])} is expected"
    is_number = "Integer configuration property" in (_said(name, "") or "")
    # librdkafka reads 6s as 6, and 4294967297 as 1.
    if is_number and not (re.fullmatch(r"-?[0-9]{1,18}", value) and abs(int(value)) <= _MOST):
        return f"a whole number is expected, of {_MOST} at most"
    if name == "ssl.providers" and not re.fullmatch(r"\w+( *, *\w+)*", value):
        return "a list of names, without paths, is expected"
    said = _said(name, value)
    return None if said is None else f"librdkafka refuses it: {without_secrets(said, {name: value}).strip()}"


def nearest(name: str, value: str) -> str:
    """Return the nearest number to `value` that librdkafka takes. A negative number, or another text, is returned as it is."""
    found = re.search(r"range (-?[0-9]+)\.\.(-?[0-9]+)", _said(name, str(-_MOST)) or "")
    if found is None or not re.fullmatch(r"[0-9]{1,19}", value):
        return value
    return str(min(max(int(value), int(found[1])), int(found[2])))


def _said(name: str, value: str) -> str | None:
    try:
        Consumer({"group.id": "-", name: value, _END: ""})
    except KafkaException as refused:
        text: str = refused.args[0].str()
    except (TypeError, ValueError) as refused:
        text = str(refused)
    return None if _END in text else text
