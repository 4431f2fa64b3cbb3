"""Attaches a description to each field of an options model: name, default, meaning, and the kinds of query that use the option.

`make pages` writes docs/options.md from these descriptions. The checks of streams and batch reads, and the comparison with
Spark's own source, use them, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, Field, ValidationError
from pydantic.fields import FieldInfo

from spark_groupsource.kafka_settings.secrets import shown

Use = Literal["both", "streams", "batch"]
"""Where an option has an effect: `spark.readStream`, `spark.read`, or both."""


class About(NamedTuple):
    """The description of an option."""

    section: str
    """The heading in docs/options.md under which the option has its row."""
    meaning: str
    """One or more sentences, in Markdown."""
    default: str
    """The default, as a user would write it, in Markdown."""
    use: Use
    only_here: bool
    """Whether Spark's own source lacks the option."""
    refused_by_streams: str | None
    """Why `spark.readStream` refuses it, if it does."""
    warned_of: bool
    """Whether `spark.read` warns that it has no effect."""


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
    """Return the field of an option.

    Args:
        name: the option.
        default: the default, as a user would write it. `None` if there is none.
        section: see `About`.
        meaning: see `About`.
        use: see `About`.
        only_here: see `About`.
        refused_by_streams: see `About`. Such an option is only for batch reads.
        warned_of: see `About`. Only if `use` is "streams".
        shown_default: the default on the page, if it is not `default`.
        private: whether `repr` hides the value.
    """
    shown = shown_default or ("none" if default is None else f"`{default}`")
    about = About(section, meaning, shown, "batch" if refused_by_streams else use, only_here, refused_by_streams, warned_of)
    settings: dict[str, Any] = {"validate_default": default is not None, "json_schema_extra": {"about": about}}
    return Field(default, alias=name, repr=not private, **settings)


def described(model: type[BaseModel]) -> dict[str, About]:
    """Return every option of a model by its name."""
    fields = ((field.alias, _about(field)) for field in model.model_fields.values())
    return {name: about for name, about in fields if name is not None and about is not None}


def wrong_values(error: ValidationError, values: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each option with a wrong value, without showing a secret.

    Args:
        error: The model's error.
        values: The user's values, by the names of the options.
    """
    for mistake in error.errors(include_url=False, include_input=False):
        name = str(mistake["loc"][0])
        yield f"{name} = {shown(name, values[name])}: {mistake.get('ctx', {}).get('error', mistake['msg'])}."


def _about(field: FieldInfo) -> About | None:
    extra = field.json_schema_extra
    about = extra.get("about") if isinstance(extra, dict) else None
    return about if isinstance(about, About) else None
