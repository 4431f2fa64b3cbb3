"""Attaches a description to each field of an options model: its name, default, meaning, and the kinds of query that use it.

`make pages` generates docs/options.md from these descriptions. The checks of streams and batch reads, and the comparison with
Spark's own source, also use them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, Field, ValidationError
from pydantic.fields import FieldInfo

from spark_groupsource.kafka_settings.secrets import shown

Use = Literal["both", "streams", "batch"]
"""Where an option takes effect: `spark.readStream`, `spark.read`, or both."""


class About(NamedTuple):
    """The description of an option."""

    section: str
    """The heading in docs/options.md under which the option is listed."""
    meaning: str
    """One or more sentences, in Markdown."""
    default: str
    """The default, as a user would write it, in Markdown."""
    use: Use
    only_here: bool
    """Whether Spark's own source lacks the option."""
    refused_by_streams: str | None
    """Why `spark.readStream` refuses the option, or `None` if it does not."""
    warned_of: bool
    """Whether `spark.read` warns that the option has no effect."""


def option(
    name: str,
    default: str | None = None,
    *,
    section: str,
    meaning: str,
    use: Use = "both",
    only_here: bool = False,
    refused_by_streams: str | None = None,
    warned_of: bool = False,
    shown_default: str | None = None,
    private: bool = False,
) -> Any:
    """Return a model field for an option.

    Args:
        name: The option's name.
        default: The default, as a user would write it, or `None` if there is none.
        section: See `About`.
        meaning: See `About`.
        use: See `About`.
        only_here: See `About`.
        refused_by_streams: See `About`. Such an option is only for batch reads.
        warned_of: See `About`. Only if `use` is "streams".
        shown_default: The default to show on the page, if it differs from `default`.
        private: Whether `repr` hides the value.
    """
    shown = shown_default or ("none" if default is None else f"`{default}`")
    about = About(section, meaning, shown, "batch" if refused_by_streams else use, only_here, refused_by_streams, warned_of)
    settings: dict[str, Any] = {"validate_default": default is not None, "json_schema_extra": {"about": about}}
    return Field(default, alias=name, repr=not private, **settings)


def described(model: type[BaseModel]) -> dict[str, About]:
    """Return the descriptions of all options in a model, by option name."""
    fields = ((field.alias, _about(field)) for field in model.model_fields.values())
    return {name: about for name, about in fields if name is not None and about is not None}


def wrong_values(error: ValidationError, values: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each option with an invalid value, without showing any secret.

    Args:
        error: The error that the model raised.
        values: The user's values, by option name.
    """
    for mistake in error.errors(include_url=False, include_input=False):
        name = str(mistake["loc"][0])
        yield f"{name} = {shown(name, values[name])}: {mistake.get('ctx', {}).get('error', mistake['msg'])}."


def _about(field: FieldInfo) -> About | None:
    extra = field.json_schema_extra
    about = extra.get("about") if isinstance(extra, dict) else None
    return about if isinstance(about, About) else None
