"""Parses a query's options, and attaches a description to each: its name, default, meaning, and the kinds of query that use it.

`make pages` generates docs/options.md from these descriptions. The checks of streams and batch reads, and the comparison with
Spark's own source, also use them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, InstanceOf, ValidationError
from pydantic.fields import FieldInfo

from spark_groupsource.kafka_settings.secrets import Settings, shown
from spark_groupsource.kafka_settings.translation import option_error, translation_of
from spark_groupsource.options.names import is_kafka, missing_options, unusable_names
from spark_groupsource.plain_model import PlainModel

if TYPE_CHECKING:
    from typing_extensions import Self

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


class QueryOptions(PlainModel):
    """The validated options of a source or a sink, as returned by `parse`. Immutable."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    ignored: ClassVar[frozenset[str]]
    """Names that are ignored, in lower case."""
    writes: ClassVar[bool]
    """Whether these are a sink's options."""

    kafka: InstanceOf[Settings] = Field(default=Settings({}), exclude=True)
    """The user's `kafka.*` options, translated for librdkafka. They contain secrets, which their `repr` hides."""

    @classmethod
    def parse(cls, options: Mapping[str, str], use: Literal["stream", "batch"] | None = None) -> Self:
        """Validate the options that Spark passes on, whose names may be in upper or lower case.

        Args:
            options: The options that the user set.
            use: The kind of query, if known. Some options are for only one kind.

        Raises:
            OptionError: The message lists every problem: the option, its value unless it is secret, and what is allowed.
        """
        given = {name.lower(): value for name, value in options.items() if name.lower() not in cls.ignored}
        names = described(cls)
        values = {name: given[name.lower()] for name in names if name.lower() in given}
        others = given.keys() - {name.lower() for name in names}
        kafka = {name.removeprefix("kafka."): given[name] for name in given if name in others and is_kafka(name)}
        translation = translation_of(kafka, writes=cls.writes)
        written = (name for name in options if name.lower() in others and not is_kafka(name.lower()))
        problems = [*unusable_names(written, names), *missing_options(given.keys(), writes=cls.writes), *translation.problems]
        try:
            parsed = cls.model_validate({**values, "kafka": translation.settings})
        except ValidationError as error:
            for mistake in error.errors(include_url=False, include_input=False):
                name = str(mistake["loc"][0])
                problems.append(f"{name} = {shown(name, values[name])}: {mistake.get('ctx', {}).get('error', mistake['msg'])}.")
        else:
            problems += parsed._conflicts(use)
        if problems:
            raise option_error(tuple(problems))
        return parsed

    def _conflicts(self, use: Literal["stream", "batch"] | None) -> Iterator[str]:
        """Yield a problem for each combination of options that are valid on their own but not together."""
        raise NotImplementedError


def _about(field: FieldInfo) -> About | None:
    extra = field.json_schema_extra
    about = extra.get("about") if isinstance(extra, dict) else None
    return about if isinstance(about, About) else None
