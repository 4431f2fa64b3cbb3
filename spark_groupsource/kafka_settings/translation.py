"""`kafka.*`: settings of Kafka's Java client in, settings of librdkafka out.

Users of Spark's own source have Java's names and forms; librdkafka's names are taken as well. What means the same is
passed, renamed or rewritten; what would do nothing here, or something else, is an error that says what to write instead.
Names are without the `kafka.` prefix inside this module and with it in every message. A value appears in a message only
when its setting is known and is not a secret.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from spark_groupsource.brokers.oauth_callback import OAUTH_CALLBACK
from spark_groupsource.errors import OptionError
from spark_groupsource.kafka_settings.tables import (
    ASSIGNORS,
    AT_MOST,
    BLANK_IS_UNSET,
    CALLBACKS,
    CLASSIC_ONLY,
    DEBUG_FLAGS,
    JAVA_CLASS,
    JWT_RETRIEVERS,
    KERBEROS,
    KNOWN_NAMES,
    LOGIN_MODULES,
    MECHANISM_NAMES,
    MECHANISMS,
    OAUTH_CALLBACK_HINT,
    OIDC_CLASSES,
    PRODUCER_ONLY,
    PROPERTIES,
    REFUSED,
    RENAMED,
    REWRITTEN,
)

_SECRET = re.compile(
    r"pass(w|phrase)|pwd|secret|token(?!\.endpoint\.url$)|jaas|\.pem$|\.config$|(^|[._])key$|keystore\.key|extensions$"
)
MASK = "********"

_SHOWN_CHARACTERS = 300


def is_secret(name: str) -> bool:
    """Whether the value of this option or setting must never be shown."""
    return _SECRET.search(name.lower()) is not None


def shown(name: str, value: str) -> str:
    """The value as a message may show it: masked when the name is a secret's; without a user, a password or a query; cut."""
    if is_secret(name):
        return MASK
    visible = "".join(_address(part) for part in re.split(r"([,\s]+)", value))
    return repr(visible if len(visible) <= _SHOWN_CHARACTERS else visible[:_SHOWN_CHARACTERS] + "...")


def _address(text: str) -> str:
    """Mask what stands before the `@` of an address, and what a URL asks with."""
    scheme, mark, rest = text.partition("://") if "://" in text else ("", "", text)
    if "@" in rest:
        rest = MASK + "@" + rest.rpartition("@")[2]
    if mark and "?" in rest:
        rest = rest.partition("?")[0] + "?" + MASK
    return scheme + mark + rest


def without_secrets(text: str, settings: Mapping[str, object]) -> str:
    """The text with the values of secret settings masked: librdkafka quotes values that it refuses."""
    for name, value in settings.items():
        if value and is_secret(name):
            text = text.replace(str(value), MASK)
    return text


class Settings(Mapping[str, str]):
    """Settings of librdkafka, unchangeable, that never show their secrets."""

    __slots__ = ("_settings",)

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = dict(settings)

    def __getitem__(self, name: str) -> str:
        return self._settings[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._settings)

    def __len__(self) -> int:
        return len(self._settings)

    def __repr__(self) -> str:
        return "{" + ", ".join(f"{name!r}: {shown(name, value)}" for name, value in sorted(self.items())) + "}"


class Translation(NamedTuple):
    """What came out: librdkafka's settings, and what is wrong with the given ones, one sentence each."""

    settings: Settings
    problems: tuple[str, ...]


def option_error(problems: tuple[str, ...]) -> OptionError:
    """One error for any number of mistakes."""
    if len(problems) == 1:
        return OptionError(problems[0])
    return OptionError(f"{len(problems)} options are wrong:" + "".join(f"\n  - {problem}" for problem in problems), problems)


def translate(settings: Mapping[str, str]) -> dict[str, str]:
    """Translate Kafka client settings for librdkafka.

    Args:
        settings: names without the `kafka.` prefix, in any case; Java's or librdkafka's.

    Raises:
        OptionError: with every mistake. It contains no secret.
    """
    translation = translation_of(settings)
    if translation.problems:
        raise option_error(translation.problems)
    return dict(translation.settings)


def translation_of(settings: Mapping[str, str]) -> Translation:
    """As `translate`, with the mistakes beside what could be translated."""
    work = _Work({name.strip().lower(): value for name, value in settings.items()})
    for step in (
        _unusable_text,
        _amazon_iam,
        _jaas,
        _oauth,
        _truststore,
        _keystore,
        _each,
        _mechanism,
        _layers,
        _protocol,
        _relations,
    ):
        step(work)
    return Translation(Settings(work.settings), tuple(dict.fromkeys(work.problems)))


class _Work:
    """One translation under way. Steps take names out of `given`; what is left at `_each` is taken name by name."""

    def __init__(self, given: dict[str, str]) -> None:
        self.given = given
        self.settings: dict[str, str] = {}
        self.sources: dict[str, str] = {}
        self.problems: list[str] = []
        self.told: set[str] = set()

    def take(self, name: str) -> str | None:
        return self.given.pop(name, None)

    def wrong(self, name: str, reason: str, *, value: str | None = None) -> None:
        """Note a mistake. What only follows from it is not told as well: see `silent_on`."""
        self.told.add(name)
        given = "" if value is None else f" = {shown(name, value)}"
        self.problems.append(f"kafka.{name}{given}: {reason}" + ("" if reason.endswith("?") else "."))

    def silent_on(self, prefix: str) -> bool:
        """Whether something has been told already about settings of this kind."""
        return any(name.startswith(prefix) for name in self.told)

    def put(self, target: str, value: str, source: str) -> None:
        """Set `target` to what `source` says, unless another setting has said something else already."""
        value = REWRITTEN.get((target, value.strip()), value)
        if not value.strip() and target in BLANK_IS_UNSET:
            return
        spec = PROPERTIES[target]
        read = _read(spec, value if spec == "text" else value.strip())
        if read is None:
            self.wrong(source, f"{_allowed(spec)} is expected", value=value)
        elif self.settings.get(target, read) != read:
            self.wrong(source, f"kafka.{self.sources[target]} sets the same thing to something else; keep one of them")
        else:
            self.settings[target] = read
            self.sources[target] = source


def _read(spec: str, value: str) -> str | None:
    """The value in librdkafka's form, or `None` when it is not one that `spec` allows."""
    if spec == "text":
        return value if value.strip() else None
    if spec == "bool":
        return value.lower() if value.lower() in ("true", "false") else None
    if spec == "flags":
        flags = [flag.strip().lower() for flag in value.split(",")]
        return ",".join(flags) if set(flags) <= DEBUG_FLAGS else None
    if ".." in spec:
        low, high = spec.split("..")
        fits = re.fullmatch(r"-?[0-9]{1,18}", value) and int(low) <= int(value) <= int(high)
        return str(int(value)) if fits else None
    return next((choice for choice in spec.split("|") if choice.lower() == value.lower()), None)


def _allowed(spec: str) -> str:
    if spec == "text":
        return "a value that is not empty"
    if spec == "bool":
        return "true or false"
    if ".." in spec:
        low, high = spec.split("..")
        return f"a whole number from {low} to {high}"
    return f"a list of {', '.join(sorted(DEBUG_FLAGS))}" if spec == "flags" else spec.replace("|", " or ")


def _unusable_text(work: _Work) -> None:
    for name, value in list(work.given.items()):
        if "\0" in value or any("\ud800" <= character <= "\udfff" for character in value):
            work.take(name)
            work.wrong(name, "it contains a character (NUL, or half a surrogate pair) that Kafka's clients cannot take")


def _class_name(value: str) -> str:
    """A Java class name without the prefix that Databricks' shading puts before it."""
    return value.strip().removeprefix("kafkashaded.")


def _amazon_iam(work: _Work) -> None:
    """One message for the four settings that MSK's documentation tells to set."""
    handlers = ("sasl.login.callback.handler.class", "sasl.client.callback.handler.class", "sasl.jaas.config")
    amazon = any("software.amazon.msk." in work.given.get(name, "") for name in handlers)
    if _given_mechanism(work) != "AWS_MSK_IAM" and not amazon:
        return
    for name in ("sasl.mechanism", "sasl.mechanisms", *handlers):
        work.take(name)
    work.wrong(
        "sasl.mechanism",
        "IAM authentication of Amazon MSK is a Java class. Set kafka.sasl.mechanism=OAUTHBEARER and "
        "kafka.oauth_cb=package.module:function, a function of yours that returns a token of the package "
        "aws-msk-iam-sasl-signer-python and its expiry in seconds since 1970; or use MSK's SCRAM "
        "(kafka.sasl.mechanism=SCRAM-SHA-512, kafka.sasl.username, kafka.sasl.password) or a client certificate",
    )


def _given_mechanism(work: _Work) -> str:
    return work.given.get("sasl.mechanism", work.given.get("sasl.mechanisms", "")).strip().upper()


class _Jaas(NamedTuple):
    module: str
    options: dict[str, str]


_JAAS_TOKEN = re.compile(
    r"""\s+ | //[^\n]* | /\*.*?\*/                  # nothing
    | (?P<quoted>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')
    | (?P<word>[^\s"'=;\\/]+(?:/[^\s"'=;\\/*]+)*)
    | (?P<mark>[=;])""",
    re.VERBOSE | re.DOTALL,
)
_JAAS_ESCAPE = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_JAAS_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_JAAS_FORM = 'module required name="value" name="value";'


def _unescape(match: re.Match[str]) -> str:
    text = match[1]
    return chr(int(text, 8)) if text[0] in "01234567" else _JAAS_ESCAPES.get(text, text)


def _parse_jaas(text: str) -> _Jaas | None:
    """Read `module flag name=value ... ;` by the rules of Java's JaasConfig and StreamTokenizer; `None` if it is not that."""
    tokens: list[tuple[str, str]] = []
    at = 0
    while at < len(text):
        match = _JAAS_TOKEN.match(text, at)
        if match is None:
            return None
        at = match.end()
        if match.lastgroup == "quoted":
            tokens.append(("value", _JAAS_ESCAPE.sub(_unescape, match[0][1:-1])))
        elif match.lastgroup:
            tokens.append((match.lastgroup, match[0]))
    kinds = " ".join(token if kind == "mark" else kind for kind, token in tokens)
    if not re.fullmatch(r"(word|value) word( word = (word|value))* ;", kinds):
        return None
    if tokens[1][1].lower() not in ("required", "requisite", "sufficient", "optional"):
        return None
    words = [token for _, token in tokens[2:-1]]
    return _Jaas(_class_name(tokens[0][1]), dict(zip(words[::3], words[2::3], strict=True)))


def _jaas(work: _Work) -> None:
    name = "sasl.jaas.config"
    text = work.take(name)
    if text is None:
        return
    jaas = _parse_jaas(text)
    mechanisms = LOGIN_MODULES.get(jaas.module) if jaas else None
    if jaas is None:
        work.wrong(name, f"one login module in the form {_JAAS_FORM} is expected, with quotes around the values")
    elif jaas.module.endswith("Krb5LoginModule"):
        work.wrong(name, KERBEROS)
    elif mechanisms is None:
        known = ", ".join(module.rpartition(".")[2] for module in LOGIN_MODULES)
        work.wrong(name, f"its login module is none of Kafka's {known}")
    elif _given_mechanism(work) not in mechanisms:
        work.wrong("sasl.mechanism", f"the login module in kafka.{name} needs {' or '.join(mechanisms)} here")
    elif mechanisms == ("OAUTHBEARER",):
        _oauth_jaas(work, dict(jaas.options))
    else:
        _password_jaas(work, dict(jaas.options))


def _password_jaas(work: _Work, options: dict[str, str]) -> None:
    name = "sasl.jaas.config"
    for option, target in (("username", "sasl.username"), ("password", "sasl.password")):
        if options.get(option):
            work.put(target, options.pop(option), name)
        else:
            work.wrong(name, f"it has no {option}")
    if options.pop("tokenauth", "false").lower() == "true":
        work.wrong(name, "delegation tokens (tokenauth) are not available in librdkafka: use the user's own name and password")
    _rest_of_jaas(work, options)


def _rest_of_jaas(work: _Work, options: dict[str, str]) -> None:
    if options:
        work.wrong(
            "sasl.jaas.config", f"{len(options)} of its options cannot be translated: remove them, or use librdkafka's settings"
        )


def _oauth_jaas(work: _Work, options: dict[str, str]) -> None:
    name = "sasl.jaas.config"
    for option, target in (
        ("clientId", "sasl.oauthbearer.client.id"),
        ("clientSecret", "sasl.oauthbearer.client.secret"),
        ("scope", "sasl.oauthbearer.scope"),
    ):
        if option in options:
            work.put(target, options.pop(option), name)
    extensions = {option: options.pop(option) for option in list(options) if option.startswith("extension_")}
    if extensions:
        pairs = (f"{option.removeprefix('extension_')}={value}" for option, value in extensions.items())
        work.put("sasl.oauthbearer.extensions", ",".join(pairs), name)
    unsecured = [option for option in options if option.startswith("unsecuredLogin")]
    for option in unsecured:
        del options[option]
    if unsecured:
        work.wrong(
            name,
            "for unsigned tokens (tests only) write kafka.enable.sasl.oauthbearer.unsecure.jwt=true and "
            "kafka.sasl.oauthbearer.config=principal=<user>",
        )
    _rest_of_jaas(work, options)


_FUNCTION_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def _oauth(work: _Work) -> None:
    callback = work.take(OAUTH_CALLBACK)
    if callback is not None and not _FUNCTION_NAME.fullmatch(callback.strip()):
        # Not shown: it may be a token.
        work.wrong(OAUTH_CALLBACK, "the name of a function that can be imported is expected, as package.module:function")
    elif callback is not None:
        work.settings[OAUTH_CALLBACK] = callback.strip()
        work.sources[OAUTH_CALLBACK] = OAUTH_CALLBACK
    handler = work.take("sasl.login.callback.handler.class")
    if handler is not None and _class_name(handler) not in OIDC_CLASSES:
        work.wrong(
            "sasl.login.callback.handler.class",
            "Java callback handlers cannot be loaded. For tokens from an OAuth server set "
            "kafka.sasl.oauthbearer.token.endpoint.url and the client's id and secret; " + OAUTH_CALLBACK_HINT,
        )
    retriever = work.take("sasl.oauthbearer.jwt.retriever.class")
    if retriever is not None:
        grant = JWT_RETRIEVERS.get(_class_name(retriever))
        if grant is None:
            work.wrong("sasl.oauthbearer.jwt.retriever.class", JAVA_CLASS)
        else:
            work.put("sasl.oauthbearer.grant.type", grant, "sasl.oauthbearer.jwt.retriever.class")
    url = work.given.get("sasl.oauthbearer.token.endpoint.url", "")
    if url.strip().lower().startswith("file:"):
        work.take("sasl.oauthbearer.token.endpoint.url")
        work.wrong("sasl.oauthbearer.token.endpoint.url", "librdkafka fetches tokens over https; it cannot read one from a file")
    elif url and "sasl.oauthbearer.method" not in work.given:
        work.put("sasl.oauthbearer.method", "oidc", "sasl.oauthbearer.token.endpoint.url")


_PEM_BLOCK = re.compile(r"-----BEGIN (?P<label>[A-Z0-9 ]+)-----(?P<body>[A-Za-z0-9+/=\s]*)-----END (?P=label)-----\s*")


def _pem(text: str) -> str | None:
    """PEM with line breaks where OpenSSL needs them (Java takes it on one line); `None` if there is no PEM in it."""
    if "-----BEGIN " not in text:
        return None

    def wrap(match: re.Match[str]) -> str:
        body = re.sub(r"\s+", "", match["body"])
        lines = "".join(body[at : at + 64] + "\n" for at in range(0, len(body), 64))
        return f"-----BEGIN {match['label']}-----\n{lines}-----END {match['label']}-----\n"

    return _PEM_BLOCK.sub(wrap, text.strip())


def _put_pem(work: _Work, target: str, text: str, source: str) -> None:
    pem = _pem(text)
    if pem is None:
        work.wrong(source, "text in PEM form (-----BEGIN ...) is expected, not the name of a file")
    else:
        work.put(target, pem, source)


_JKS_TRUST = (
    "librdkafka cannot read Java trust stores. Convert it: keytool -importkeystore -srckeystore truststore.jks -destkeystore "
    "truststore.p12 -deststoretype PKCS12, then openssl pkcs12 -in truststore.p12 -nokeys -out ca.pem; and set "
    "kafka.ssl.truststore.type=PEM and kafka.ssl.truststore.location to ca.pem, on every node"
)
_P12_TRUST = (
    "librdkafka reads trusted certificates as PEM. Convert it: openssl pkcs12 -in truststore.p12 -nokeys -out ca.pem; and set "
    "kafka.ssl.truststore.type=PEM and kafka.ssl.truststore.location to ca.pem, on every node"
)
_JKS_KEY = (
    "librdkafka cannot read Java key stores. Convert it: keytool -importkeystore -srckeystore keystore.jks -destkeystore "
    "keystore.p12 -deststoretype PKCS12; and set kafka.ssl.keystore.type=PKCS12 and kafka.ssl.keystore.location to keystore.p12, "
    "on every node"
)


def _truststore(work: _Work) -> None:
    names = ("ssl.truststore.type", "ssl.truststore.location", "ssl.truststore.certificates", "ssl.truststore.password")
    kind, location, certificates, password = (work.take(name) for name in names)
    if (kind, location, certificates, password) == (None,) * 4:
        return
    kind = (kind or "").strip().upper()
    if kind == "PEM":
        if (location is None) == (certificates is None):
            work.wrong(
                "ssl.truststore.type", "PEM needs kafka.ssl.truststore.location or kafka.ssl.truststore.certificates, one of them"
            )
        elif location is not None:
            work.put("ssl.ca.location", location, "ssl.truststore.location")
        elif certificates is not None:
            _put_pem(work, "ssl.ca.pem", certificates, "ssl.truststore.certificates")
        if password is not None:
            work.wrong("ssl.truststore.password", "certificates in PEM form have no password; remove it")
    elif certificates is not None:
        work.wrong("ssl.truststore.type", "kafka.ssl.truststore.certificates needs PEM here")
    else:
        work.wrong("ssl.truststore.type" if kind else "ssl.truststore.location", _P12_TRUST if kind == "PKCS12" else _JKS_TRUST)


def _keystore(work: _Work) -> None:
    kind = (work.take("ssl.keystore.type") or "").strip().upper()
    key, chain = work.take("ssl.keystore.key"), work.take("ssl.keystore.certificate.chain")
    location = work.given.get("ssl.keystore.location")
    if not kind and location is not None and location.strip().lower().endswith((".p12", ".pfx")):
        kind = "PKCS12"  # Java's default type reads such files too
    if kind == "PEM":
        _pem_keystore(work, key, chain)
    elif key is not None or chain is not None:
        work.wrong("ssl.keystore.type", "kafka.ssl.keystore.key and kafka.ssl.keystore.certificate.chain need PEM here")
    elif kind == "PKCS12":
        _pkcs12_keystore(work)
    elif kind or location is not None:
        for name in ("ssl.keystore.location", "ssl.keystore.password", "ssl.key.password"):
            work.take(name)
        work.wrong("ssl.keystore.type" if kind else "ssl.keystore.location", _JKS_KEY)


def _pkcs12_keystore(work: _Work) -> None:
    """librdkafka reads it; it has one password for the file and the key."""
    password, key_password = work.given.get("ssl.keystore.password"), work.take("ssl.key.password")
    for name in ("ssl.keystore.location", "ssl.keystore.password"):
        if name not in work.given:
            work.wrong(name, "it is missing; a PKCS12 key store needs it")
    if key_password is not None and key_password != password:
        work.wrong("ssl.key.password", "a PKCS12 key store has one password, kafka.ssl.keystore.password; remove this one")


def _pem_keystore(work: _Work, key: str | None, chain: str | None) -> None:
    location = work.take("ssl.keystore.location")
    if work.take("ssl.keystore.password") is not None:
        work.wrong("ssl.keystore.password", "a PEM key store has none; the key's own password is kafka.ssl.key.password")
    if location is not None:
        if key is not None or chain is not None:
            work.wrong("ssl.keystore.location", "kafka.ssl.keystore.key is given as well; keep one of them")
        work.put("ssl.key.location", location, "ssl.keystore.location")
        work.put("ssl.certificate.location", location, "ssl.keystore.location")
    elif key is None or chain is None:
        work.wrong(
            "ssl.keystore.type",
            "PEM needs kafka.ssl.keystore.key and kafka.ssl.keystore.certificate.chain, or kafka.ssl.keystore.location",
        )
    else:
        _put_pem(work, "ssl.key.pem", key, "ssl.keystore.key")
        _put_pem(work, "ssl.certificate.pem", chain, "ssl.keystore.certificate.chain")


def _each(work: _Work) -> None:
    """Take what needs no company, name by name."""
    if "metadata.max.age.ms" in work.given and "topic.metadata.refresh.interval.ms" not in work.given:
        # Java's setting says how often metadata is asked for; librdkafka's of that name, how long an answer is believed,
        # which follows from the interval.
        work.put("topic.metadata.refresh.interval.ms", work.given.pop("metadata.max.age.ms"), "metadata.max.age.ms")
    for name, value in sorted(work.given.items()):
        target = RENAMED.get(name, name)
        if name in CALLBACKS or name.endswith("_cb"):
            work.wrong(name, "an option cannot carry a function; remove it")
        elif name in PRODUCER_ONLY:
            work.wrong(name, "it is a producer's setting, and this source only reads; remove it")
        elif name in REFUSED:
            work.wrong(name, REFUSED[name])
        elif name == "partition.assignment.strategy":
            _assignors(work, value)
        elif target in PROPERTIES:
            work.put(target, value, name)
        else:
            near = difflib.get_close_matches(name, KNOWN_NAMES - frozenset(REFUSED), n=3, cutoff=0.75)
            hint = f". Did you mean {' or '.join('kafka.' + found for found in near)}?" if near else ""
            work.wrong(name, f"Kafka's consumer has no setting of this name{hint}")


def _assignors(work: _Work, value: str) -> None:
    name = "partition.assignment.strategy"
    given = [_class_name(part) for part in value.split(",") if part.strip()]
    known = [ASSIGNORS.get(part) or ASSIGNORS.get(part.lower()) for part in given]
    if not given or None in known:
        work.wrong(
            name, "cooperative-sticky, range or roundrobin (or the Java classes of these) are expected; librdkafka has no other"
        )
    elif len(set(known)) > 1 and "cooperative-sticky" in known:
        work.wrong(
            name,
            "cooperative-sticky cannot stand in one list with range or roundrobin: librdkafka does not move a live group from "
            "one kind to the other. Set cooperative-sticky alone, or what the other members of the group use",
        )
    else:
        work.put(name, ",".join(assignor for assignor in dict.fromkeys(known) if assignor), name)


def _mechanism(work: _Work) -> None:
    """Whether the mechanism is there, is one that librdkafka has, and has what it needs."""
    mechanism = work.settings.get("sasl.mechanism")
    if work.silent_on("sasl.") or work.silent_on(OAUTH_CALLBACK):
        return
    if mechanism is None:
        if work.settings.get("security.protocol", "").startswith("sasl_"):
            work.wrong("sasl.mechanism", f"it is missing; with SASL it has to be {MECHANISM_NAMES}")
        return
    work.settings["sasl.mechanism"] = mechanism = mechanism.strip().upper()
    if mechanism not in MECHANISMS:
        work.wrong("sasl.mechanism", KERBEROS if mechanism == "GSSAPI" else f"{MECHANISM_NAMES} is expected")
    elif mechanism == "OAUTHBEARER":
        _tokens(work)
    elif OAUTH_CALLBACK in work.settings:
        work.wrong(OAUTH_CALLBACK, "only OAUTHBEARER takes tokens; set kafka.sasl.mechanism=OAUTHBEARER, or remove it")
    else:
        for needed in ("sasl.username", "sasl.password"):
            if needed not in work.settings:
                work.wrong(needed, f"it is missing; {mechanism} needs it (or kafka.sasl.jaas.config)")


def _tokens(work: _Work) -> None:
    settings = work.settings
    if OAUTH_CALLBACK in settings:
        others = {work.sources[name] for name in settings if name.startswith(("sasl.oauthbearer.", "enable.sasl."))}
        for name in sorted(others - {"sasl.oauthbearer.config"}):
            work.wrong(name, "kafka.oauth_cb gives the tokens, which leaves this unused; keep one of them")
    elif settings.get("sasl.oauthbearer.method") != "oidc":
        if settings.get("enable.sasl.oauthbearer.unsecure.jwt") != "true":
            work.wrong(
                "sasl.oauthbearer.token.endpoint.url",
                "OAUTHBEARER needs it, with the client's id and secret; " + OAUTH_CALLBACK_HINT,
            )
    elif (
        settings.get("sasl.oauthbearer.grant.type", "client_credentials") == "client_credentials"
        and settings.get("sasl.oauthbearer.metadata.authentication.type", "none") == "none"
    ):
        for needed in ("sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret"):
            if needed not in settings:
                work.wrong(needed, "it is missing; the OAuth server asks for it")


def _layers(work: _Work) -> None:
    """Credentials that would not be used: the connection is not what their owner thinks it is."""
    protocol = work.settings.get("security.protocol", "plaintext")
    for layer, prefix, remedy in (
        ("sasl", ("sasl.", "enable.sasl.", OAUTH_CALLBACK), "SASL_SSL (or SASL_PLAINTEXT)"),
        ("ssl", ("ssl.ca.", "ssl.key", "ssl.certificate."), "SSL or SASL_SSL"),
    ):
        unused = sorted({work.sources[name] for name in work.settings if name.startswith(prefix)})
        if unused and layer not in protocol.split("_") and not work.silent_on("security.protocol"):
            names = ", ".join("kafka." + name for name in unused)
            work.wrong("security.protocol", f"it is {protocol}, which leaves {names} unused; set it to {remedy}")


def _protocol(work: _Work) -> None:
    if work.settings.get("group.protocol", "classic") == "classic":
        if "group.remote.assignor" in work.settings:
            work.wrong(
                "group.remote.assignor",
                "it belongs to kafka.group.protocol=consumer; with classic set kafka.partition.assignment.strategy",
            )
        return
    for name in CLASSIC_ONLY:
        if name in work.settings:
            work.wrong(name, "with kafka.group.protocol=consumer the broker decides this (KIP-848); remove it")


def _relations(work: _Work) -> None:
    settings = work.settings
    classic = settings.get("group.protocol", "classic") == "classic"
    for low, low_default, high, high_default in AT_MOST:
        if (low not in settings and high not in settings) or (low in CLASSIC_ONLY and not classic):
            continue
        least, most = int(settings.get(low, low_default)), int(settings.get(high, high_default))
        if least > most:
            by_default = "" if low in settings else " by default"
            work.wrong(low, f"it is {least} ms{by_default}, which is above kafka.{high} ({most} ms)")
    fetched = int(settings.get("fetch.max.bytes", "52428800"))
    sent, received = (
        int(settings.get("message.max.bytes", "1000000")),
        int(settings.get("receive.message.max.bytes", "100000000")),
    )
    if "fetch.max.bytes" in settings and fetched < sent:
        work.wrong("fetch.max.bytes", f"it is {fetched}; librdkafka needs at least kafka.message.max.bytes, which is {sent}")
    if "receive.message.max.bytes" in settings and received < fetched + 512:
        work.wrong(
            "receive.message.max.bytes", f"it is {received}, and has to be at least kafka.fetch.max.bytes ({fetched}) + 512"
        )
    if "_WITH_" in settings.get("ssl.cipher.suites", ""):
        work.wrong("ssl.cipher.suites", "OpenSSL's names of cipher suites are expected, such as ECDHE-RSA-AES128-GCM-SHA256")
