"""Translates login settings (SASL mechanisms, JAAS and OAuth), and refuses those that librdkafka does not support."""

from __future__ import annotations

import re
from typing import NamedTuple

from spark_groupsource.kafka_settings.draft import Draft, class_name
from spark_groupsource.kafka_settings.tables import (
    JAVA_CLASS,
    JWT_RETRIEVERS,
    KERBEROS,
    LOGIN_MODULES,
    MECHANISM_NAMES,
    MECHANISMS,
    OAUTH_CALLBACK,
    OAUTH_CALLBACK_HINT,
    OIDC_CLASSES,
)


class Jaas(NamedTuple):
    """A login module and its options."""

    module: str
    options: dict[str, str]


_TOKEN = re.compile(
    r"""\s+ | //[^\n]* | /\*.*?\*/                  # blanks and comments
    | (?P<quoted>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')
    | (?P<word>[^\s"'=;\\/]+(?:/[^\s"'=;\\/*]+)*)
    | (?P<mark>[=;])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}

JAAS_FORM = 'module required name="value" name="value";'
"""The form of `sasl.jaas.config`, for messages."""


def _unescape(match: re.Match[str]) -> str:
    text = match[1]
    return chr(int(text, 8)) if text[0] in "01234567" else _ESCAPES.get(text, text)


def parse_jaas(text: str) -> Jaas | None:
    """Parse `module flag name=value ... ;` as Java's JaasConfig and StreamTokenizer do.

    Returns:
        The login module, or `None` if the text does not have this form.
    """
    tokens: list[tuple[str, str]] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            return None
        at = match.end()
        if match.lastgroup == "quoted":
            tokens.append(("value", _ESCAPE.sub(_unescape, match[0][1:-1])))
        elif match.lastgroup:
            tokens.append((match.lastgroup, match[0]))
    kinds = " ".join(token if kind == "mark" else kind for kind, token in tokens)
    if not re.fullmatch(r"(word|value) word( word = (word|value))* ;", kinds):
        return None
    if tokens[1][1].lower() not in ("required", "requisite", "sufficient", "optional"):
        return None
    words = [token for _, token in tokens[2:-1]]
    return Jaas(class_name(tokens[0][1]), dict(zip(words[::3], words[2::3], strict=True)))


def refuse_amazon_iam(draft: Draft) -> None:
    """Report one problem for all of the settings that Amazon MSK's documentation recommends for IAM."""
    handlers = ("sasl.login.callback.handler.class", "sasl.client.callback.handler.class", "sasl.jaas.config")
    amazon = any("software.amazon.msk." in draft.given.get(name, "") for name in handlers)
    if _given_mechanism(draft) != "AWS_MSK_IAM" and not amazon:
        return
    for name in ("sasl.mechanism", "sasl.mechanisms", *handlers):
        draft.take(name)
    draft.wrong(
        "sasl.mechanism",
        "Amazon MSK's IAM authentication needs a Java class, which cannot be loaded here. Set kafka.sasl.mechanism=OAUTHBEARER "
        "and kafka.oauth_cb=package.module:function, the name of your function with @oauth_callback that returns a token from "
        "the aws-msk-iam-sasl-signer-python package and its expiry in seconds since 1970. Or use MSK's SCRAM "
        "(kafka.sasl.mechanism=SCRAM-SHA-512, kafka.sasl.username, kafka.sasl.password) or a client certificate",
    )


def _given_mechanism(draft: Draft) -> str:
    return draft.given.get("sasl.mechanism", draft.given.get("sasl.mechanisms", "")).strip().upper()


def translate_jaas(draft: Draft) -> None:
    """Translate `sasl.jaas.config`, which contains one login module and its options."""
    name = "sasl.jaas.config"
    text = draft.take(name)
    if text is None:
        return
    jaas = parse_jaas(text)
    mechanisms = LOGIN_MODULES.get(jaas.module) if jaas else None
    if jaas is None:
        draft.wrong(name, f"one login module in the form {JAAS_FORM} is expected, with quotes around the values")
    elif jaas.module.endswith("Krb5LoginModule"):
        draft.wrong(name, KERBEROS)
    elif mechanisms is None:
        known = ", ".join(module.rpartition(".")[2] for module in LOGIN_MODULES)
        draft.wrong(name, f"its login module is unknown; Kafka's login modules are {known}")
    elif _given_mechanism(draft) not in mechanisms:
        draft.wrong("sasl.mechanism", f"the login module in kafka.{name} needs {' or '.join(mechanisms)}")
    elif mechanisms == ("OAUTHBEARER",):
        _oauth_jaas(draft, dict(jaas.options))
    else:
        _password_jaas(draft, dict(jaas.options))


def _password_jaas(draft: Draft, options: dict[str, str]) -> None:
    name = "sasl.jaas.config"
    for option, target in (("username", "sasl.username"), ("password", "sasl.password")):
        if options.get(option):
            draft.put(target, options.pop(option), name)
        else:
            draft.wrong(name, f"it has no {option}")
    if options.pop("tokenauth", "false").lower() == "true":
        draft.wrong(name, "librdkafka does not support delegation tokens (tokenauth); use the user's name and password")
    _rest_of_jaas(draft, options)


def _rest_of_jaas(draft: Draft, options: dict[str, str]) -> None:
    if options:
        draft.wrong(
            "sasl.jaas.config", f"{len(options)} of its options cannot be translated: remove them, or use librdkafka's settings"
        )


def _oauth_jaas(draft: Draft, options: dict[str, str]) -> None:
    name = "sasl.jaas.config"
    for option, target in (
        ("clientId", "sasl.oauthbearer.client.id"),
        ("clientSecret", "sasl.oauthbearer.client.secret"),
        ("scope", "sasl.oauthbearer.scope"),
    ):
        if option in options:
            draft.put(target, options.pop(option), name)
    extensions = {option: options.pop(option) for option in list(options) if option.startswith("extension_")}
    if extensions:
        pairs = (f"{option.removeprefix('extension_')}={value}" for option, value in extensions.items())
        draft.put("sasl.oauthbearer.extensions", ",".join(pairs), name)
    unsecured = [option for option in options if option.startswith("unsecuredLogin")]
    for option in unsecured:
        del options[option]
    if unsecured:
        draft.wrong(
            name,
            "for unsigned tokens (only for tests) set kafka.enable.sasl.oauthbearer.unsecure.jwt=true and "
            "kafka.sasl.oauthbearer.config=principal=<user>",
        )
    _rest_of_jaas(draft, options)


_FUNCTION_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def translate_oauth(draft: Draft) -> None:
    """Translate the OAUTHBEARER settings: the token function or the OAuth server."""
    callback = draft.take(OAUTH_CALLBACK)
    if callback is not None and not _FUNCTION_NAME.fullmatch(callback.strip()):
        # Do not show the value, because it may be a token.
        draft.wrong(OAUTH_CALLBACK, "the name of an importable function is expected, as package.module:function")
    elif callback is not None:
        draft.settings[OAUTH_CALLBACK] = callback.strip()
        draft.sources[OAUTH_CALLBACK] = OAUTH_CALLBACK
    handler = draft.take("sasl.login.callback.handler.class")
    if handler is not None and class_name(handler) not in OIDC_CLASSES:
        draft.wrong(
            "sasl.login.callback.handler.class",
            "Java callback handlers cannot be loaded. For tokens from an OAuth server set "
            "kafka.sasl.oauthbearer.token.endpoint.url and the client's id and secret; " + OAUTH_CALLBACK_HINT,
        )
    retriever = draft.take("sasl.oauthbearer.jwt.retriever.class")
    if retriever is not None:
        grant = JWT_RETRIEVERS.get(class_name(retriever))
        if grant is None:
            draft.wrong("sasl.oauthbearer.jwt.retriever.class", JAVA_CLASS)
        else:
            draft.put("sasl.oauthbearer.grant.type", grant, "sasl.oauthbearer.jwt.retriever.class")
    url = draft.given.get("sasl.oauthbearer.token.endpoint.url", "")
    if url.strip().lower().startswith("file:"):
        draft.take("sasl.oauthbearer.token.endpoint.url")
        draft.wrong(
            "sasl.oauthbearer.token.endpoint.url", "librdkafka fetches tokens over https, and cannot read a token from a file"
        )
    elif url and "sasl.oauthbearer.method" not in draft.given:
        draft.put("sasl.oauthbearer.method", "oidc", "sasl.oauthbearer.token.endpoint.url")


def check_mechanism(draft: Draft) -> None:
    """Check that librdkafka supports the mechanism, and that neither it nor a setting that it needs is missing."""
    if draft.has_mistake("sasl.") or draft.has_mistake(OAUTH_CALLBACK):
        return
    mechanism = draft.settings.get("sasl.mechanism")
    if mechanism is None:
        if draft.settings.get("security.protocol", "").startswith("sasl_"):
            draft.wrong("sasl.mechanism", f"it is missing; with SASL it must be {MECHANISM_NAMES}")
        return
    draft.settings["sasl.mechanism"] = mechanism = mechanism.strip().upper()
    if mechanism not in MECHANISMS:
        draft.wrong("sasl.mechanism", KERBEROS if mechanism == "GSSAPI" else f"{MECHANISM_NAMES} is expected")
    elif mechanism == "OAUTHBEARER":
        _tokens(draft)
    elif OAUTH_CALLBACK in draft.settings:
        draft.wrong(OAUTH_CALLBACK, "only OAUTHBEARER uses tokens; set kafka.sasl.mechanism=OAUTHBEARER, or remove this setting")
    else:
        for needed in ("sasl.username", "sasl.password"):
            if needed not in draft.settings:
                draft.wrong(needed, f"it is missing; {mechanism} needs it (or kafka.sasl.jaas.config)")


def _tokens(draft: Draft) -> None:
    settings = draft.settings
    if OAUTH_CALLBACK in settings:
        unused = {draft.sources[name] for name in settings if name.startswith(("sasl.oauthbearer.", "enable.sasl."))}
        for name in sorted(unused - {"sasl.oauthbearer.config"}):
            draft.wrong(name, "kafka.oauth_cb provides the tokens, so this has no effect; remove one of them")
    elif settings.get("sasl.oauthbearer.method") != "oidc":
        if settings.get("enable.sasl.oauthbearer.unsecure.jwt") != "true":
            draft.wrong(
                "sasl.oauthbearer.token.endpoint.url",
                "OAUTHBEARER needs it, with the client's id and secret; " + OAUTH_CALLBACK_HINT,
            )
    elif (
        settings.get("sasl.oauthbearer.grant.type", "client_credentials").lower() == "client_credentials"
        and settings.get("sasl.oauthbearer.metadata.authentication.type", "none").lower() == "none"
    ):
        for needed in ("sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret"):
            if needed not in settings:
                draft.wrong(needed, "it is missing; the OAuth server requires it")
