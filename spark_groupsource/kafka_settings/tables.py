"""Tables of Kafka client settings: librdkafka's, and the Java clients' settings that are renamed, rewritten or refused."""

from __future__ import annotations

import re
from collections.abc import Mapping


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_OF_CONSUMERS = _names(
    """
    allow.auto.create.topics check.crcs coordinator.query.interval.ms fetch.error.backoff.ms fetch.max.bytes fetch.min.bytes
    fetch.queue.backoff.ms fetch.wait.max.ms group.id group.instance.id group.protocol group.remote.assignor
    heartbeat.interval.ms isolation.level max.partition.fetch.bytes max.poll.interval.ms partition.assignment.strategy
    queued.max.messages.kbytes queued.min.messages receive.message.max.bytes session.timeout.ms
    """
)
PRODUCER_NAMES = _names(
    """
    acks batch.num.messages batch.size compression.level compression.type enable.idempotence linger.ms message.max.bytes
    message.timeout.ms partitioner queue.buffering.backpressure.threshold queue.buffering.max.kbytes
    queue.buffering.max.messages retries sticky.partitioning.linger.ms topic.metadata.propagation.max.ms transaction.timeout.ms
    """
)
"""librdkafka settings that producers need and that are known to be safe and useful in this package."""

_OF_EVERY_CLIENT = _names(
    """
    api.version.fallback.ms api.version.request api.version.request.timeout.ms bootstrap.servers broker.address.family
    broker.address.ttl broker.version.fallback client.dns.lookup client.id client.rack connections.max.idle.ms debug
    enable.metrics.push enable.random.seed enable.sasl.oauthbearer.unsecure.jwt enable.ssl.certificate.verification
    https.ca.location https.ca.pem log.connection.close log.thread.name log_level max.in.flight.requests.per.connection
    message.copy.max.bytes metadata.max.age.ms metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy
    reconnect.backoff.max.ms reconnect.backoff.ms retry.backoff.max.ms retry.backoff.ms sasl.mechanism
    sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud sasl.oauthbearer.assertion.claim.exp.seconds
    sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.jti.include
    sasl.oauthbearer.assertion.claim.nbf.seconds sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file
    sasl.oauthbearer.assertion.jwt.template.file sasl.oauthbearer.assertion.private.key.file
    sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.private.key.pem sasl.oauthbearer.client.id
    sasl.oauthbearer.client.secret sasl.oauthbearer.config sasl.oauthbearer.extensions sasl.oauthbearer.grant.type
    sasl.oauthbearer.metadata.authentication.type sasl.oauthbearer.method sasl.oauthbearer.scope sasl.oauthbearer.sub.claim.name
    sasl.oauthbearer.token.endpoint.url sasl.password sasl.username security.protocol socket.connection.setup.timeout.ms
    socket.keepalive.enable socket.max.fails socket.nagle.disable socket.receive.buffer.bytes socket.send.buffer.bytes
    socket.timeout.ms ssl.ca.location ssl.ca.pem ssl.certificate.location ssl.certificate.pem ssl.cipher.suites ssl.crl.location
    ssl.curves.list ssl.endpoint.identification.algorithm ssl.key.location ssl.key.password ssl.key.pem ssl.keystore.location
    ssl.keystore.password ssl.providers ssl.sigalgs.list topic.metadata.refresh.fast.interval.ms
    topic.metadata.refresh.interval.ms topic.metadata.refresh.sparse
    """
)
NAMES = _OF_CONSUMERS | PRODUCER_NAMES | _OF_EVERY_CLIENT
"""librdkafka settings that are known to be safe and useful in this package. They are also suggested for a misspelled name.
draft.py asks librdkafka which other settings exist, and which values they accept."""

CHOICES: Mapping[str, tuple[str, ...]] = {
    "group.protocol": ("classic", "consumer"),
    "isolation.level": ("read_uncommitted", "read_committed"),
    "sasl.oauthbearer.method": ("default", "oidc"),
    "security.protocol": ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl"),
    "ssl.endpoint.identification.algorithm": ("none", "https"),
}
"""Settings whose values this package depends on, each with all values that the package supports, in upper or lower case."""

NAMES_CODE = re.compile(r"plugin|librar|engine|provider|class|callback|module|_cb$")
"""Matches names of settings that may load code. Unknown settings with such names are refused."""

RENAMED: Mapping[str, str] = {
    "compression.codec": "compression.type",
    "compression.gzip.level": "compression.level",
    "compression.lz4.level": "compression.level",
    "compression.zstd.level": "compression.level",
    "delivery.timeout.ms": "message.timeout.ms",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "max.block.ms": "topic.metadata.propagation.max.ms",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "max.request.size": "message.max.bytes",
    "message.send.max.retries": "retries",
    "metadata.broker.list": "bootstrap.servers",
    "queue.buffering.max.ms": "linger.ms",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "request.required.acks": "acks",
    "request.timeout.ms": "socket.timeout.ms",
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.oauthbearer.assertion.template.file": "sasl.oauthbearer.assertion.jwt.template.file",
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
    "send.buffer.bytes": "socket.send.buffer.bytes",
}
"""Other names for librdkafka settings: Java's names and librdkafka's aliases."""

REWRITTEN: Mapping[tuple[str, str], str] = {
    ("acks", "all"): "-1",
    ("connections.max.idle.ms", "-1"): "0",
    ("socket.receive.buffer.bytes", "-1"): "0",
    ("socket.send.buffer.bytes", "-1"): "0",
    # In Java, 0 means "at each poll", at most every `retry.backoff.ms`. In librdkafka, it means "never".
    ("topic.metadata.refresh.interval.ms", "0"): "100",
    ("ssl.endpoint.identification.algorithm", ""): "none",
}
"""Values that Java and librdkafka write differently, by librdkafka's name for the setting and Java's value."""

WITHIN_RANGE = frozenset(
    {
        "batch.size",
        "connections.max.idle.ms",
        "fetch.max.bytes",
        "fetch.wait.max.ms",
        "max.partition.fetch.bytes",
        "max.poll.interval.ms",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "retry.backoff.max.ms",
        "retry.backoff.ms",
        "socket.connection.setup.timeout.ms",
        "topic.metadata.propagation.max.ms",
        "topic.metadata.refresh.interval.ms",
    }
)
"""Settings whose numbers have a wider range in Java than in librdkafka, under librdkafka's names. Using the nearest number that
librdkafka accepts makes no difference to users: a client asks more often, waits for at most an hour or a day, or fetches a little
more or less at a time."""

BLANK_IS_UNSET = frozenset({"client.rack", "client.id"})
"""Settings whose default in Java is the empty string."""

PER_HOST = frozenset({"client.rack", "ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.keystore.location"})
"""Settings in which `${env:NAME}` stands for an environment variable of the process that creates the client: the rack and the
files of that process's host.

An option must not reveal the environment, so this set has no setting whose value is shown, such as `client.id`, which appears in
librdkafka's log lines, in member ids and on the brokers, or `bootstrap.servers`. The set also leaves out secrets, which an
executor gets from `oauth_cb` or a file, and `ssl.crl.location`, which is the same on every host."""

LEFT_OUT_IF_UNSET = frozenset({"client.rack"})
"""Settings that a client can do without if their variable is not set. A missing file, however, is an error, because the client
would trust other certificates, or present none."""

OAUTH_CALLBACK = "oauth_cb"
"""The setting that names the token function, without the `kafka.` prefix."""

OAUTH_CALLBACK_HINT = "for other tokens set kafka.oauth_cb=package.module:function, a Python function with @oauth_callback"

_JAVA = "it is for the Java client, which is not used here"

REASONS: Mapping[str, str] = {
    "groupkafka sets this itself, so that its guarantees hold": """
        auto.commit.enable auto.commit.interval.ms auto.offset.reset delivery.report.only.error enable.auto.commit
        enable.auto.offset.store enable.gapless.guarantee enable.partition.eof group.protocol.type offset.store.method
        offset.store.path offset.store.sync.interval.ms queuing.strategy topic.blacklist transaction.two.phase.commit.enable
        transactional.id
        """,
    "librdkafka has no such setting": """
        default.api.timeout.ms max.poll.records metadata.max.idle.ms partitioner.adaptive.partitioning.enable
        partitioner.availability.timeout.ms sasl.login.connect.timeout.ms sasl.login.read.timeout.ms
        sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor
        sasl.login.refresh.window.jitter sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms
        sasl.oauthbearer.header.urlencode sasl.oauthbearer.scope.claim.name socket.connection.setup.timeout.max.ms
        ssl.enabled.protocols ssl.protocol
        """,
    _JAVA: """
        auto.include.jmx.reporter config.providers interceptor.classes internal.throw.on.fetch.stable.offset.unsupported
        key.deserializer key.serializer metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms
        partitioner.class partitioner.ignore.keys sasl.client.callback.handler.class sasl.login.class
        sasl.oauthbearer.jwt.validator.class security.providers ssl.engine.factory.class ssl.keymanager.algorithm ssl.provider
        ssl.secure.random.implementation ssl.trustmanager.algorithm value.deserializer value.serializer
        """,
    "it has no effect here": """
        builtin.features consume.callback.max.messages enabled_events internal.termination.signal log.queue
        produce.offset.report reconnect.backoff.jitter.ms sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience
        sasl.oauthbearer.expected.issuer sasl.oauthbearer.jwks.endpoint.refresh.ms
        sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.ms
        sasl.oauthbearer.jwks.endpoint.url share.acknowledgement.mode share.acquire.mode socket.blocking.max.ms
        ssl.ca.certificate.stores statistics.interval.ms topic.metadata.refresh.fast.cnt
        """,
    "it would load a native library, which an option must not do": """
        plugin.library.paths ssl.engine.id ssl.engine.location
        """,
}
"""The settings that are refused, by the reason that the error message gives."""

_READ_AS_BINARY = "keys and values are binary columns, as in Spark's own source: deserialize them with DataFrame operations"
_WRITTEN_AS_BINARY = (
    "keys and values are binary or string columns, as in Spark's own sink: serialize them with DataFrame operations"
)
_TLS_VERSION = "OpenSSL negotiates the newest TLS version that both sides support; remove it"
_PARTITIONER = (
    "rows with a key go to the partition that the Java producer would choose. For another choice, set kafka.partitioner to one "
    "of librdkafka's partitioners, or add a partition column"
)

_INSTEAD: Mapping[str, str] = {
    "auto.offset.reset": "set the startingOffsets option to earliest or latest instead",
    "default.api.timeout.ms": "set kafka.request.timeout.ms instead",
    "group.protocol.type": "remove it. kafka.group.protocol sets the rebalance protocol",
    "key.deserializer": _READ_AS_BINARY,
    "key.serializer": _WRITTEN_AS_BINARY,
    "max.poll.records": "set the maxOffsetsPerTrigger option, or remove it",
    "partitioner.class": _PARTITIONER,
    "partitioner.ignore.keys": _PARTITIONER,
    "socket.connection.setup.timeout.max.ms": "set kafka.socket.connection.setup.timeout.ms, which never grows",
    "ssl.ca.certificate.stores": "set kafka.ssl.ca.location",
    "ssl.enabled.protocols": _TLS_VERSION,
    "ssl.protocol": _TLS_VERSION,
    "topic.blacklist": "write subscribePattern so that it does not match those topics",
    "transactional.id": "set the transactionalIdPrefix option",
    "value.deserializer": _READ_AS_BINARY,
    "value.serializer": _WRITTEN_AS_BINARY,
}
"""What to do about a refused setting, unless it is enough to remove it."""

KERBEROS = (
    "Kerberos is not available, because confluent-kafka's packages are built without GSSAPI; use SCRAM-SHA-512, PLAIN or "
    "OAUTHBEARER with kafka.sasl.mechanism, or a client certificate"
)

_OF_KERBEROS = _names(
    """
    sasl.kerberos.keytab sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin sasl.kerberos.principal
    sasl.kerberos.service.name sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor
    """
)

JAVA_CLASS = f"{_JAVA}; remove it"

REFUSED_SETTINGS: Mapping[str, str] = {
    **{name: f"{reason}; {_INSTEAD.get(name, 'remove it')}" for reason, names in REASONS.items() for name in names.split()},
    **dict.fromkeys(_OF_KERBEROS, KERBEROS),
}
"""Known consumer and producer settings that are refused, with the reason and what to do instead."""

PRODUCER_ONLY = PRODUCER_NAMES - {"message.max.bytes", "topic.metadata.propagation.max.ms"} | _names(
    """
    buffer.memory compression.codec compression.gzip.level compression.lz4.level compression.zstd.level
    delivery.report.only.error delivery.timeout.ms enable.gapless.guarantee key.serializer max.block.ms max.request.size
    message.send.max.retries metadata.max.idle.ms msg_order_cmp partitioner.adaptive.partitioning.enable
    partitioner.availability.timeout.ms partitioner.class partitioner.ignore.keys produce.offset.report queue.buffering.max.ms
    queuing.strategy request.required.acks transaction.two.phase.commit.enable transactional.id value.serializer
    """
)
"""Settings that only producers have, in Java or in librdkafka."""

CONSUMER_ONLY = _OF_CONSUMERS | _names(
    """
    auto.commit.enable auto.commit.interval.ms auto.offset.reset consume.callback.max.messages default.api.timeout.ms
    enable.auto.commit enable.auto.offset.store enable.partition.eof exclude.internal.topics fetch.max.wait.ms
    fetch.message.max.bytes group.protocol.type key.deserializer max.poll.records offset.store.method offset.store.path
    offset.store.sync.interval.ms topic.blacklist value.deserializer
    """
)
"""Settings that only consumers have, in Java or in librdkafka."""

CALLBACKS = _names(
    """
    background_event_cb closesocket_cb connect_cb consume_cb default.topic.config default_topic_conf dr_cb dr_msg_cb error_cb
    interceptors log_cb logger oauthbearer_token_refresh_cb offset_commit_cb on_commit on_delivery opaque open_cb partitioner_cb
    rebalance_cb resolve_cb socket_cb ssl.certificate.verify_cb ssl_ca ssl_certificate ssl_engine_callback_data ssl_key stats_cb
    throttle_cb
    """
)
"""librdkafka or confluent-kafka settings whose values are functions or objects, which an option cannot hold."""

STRUCTURED = _names(
    """
    oauth_cb sasl.jaas.config sasl.login.callback.handler.class sasl.oauthbearer.jwt.retriever.class
    ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.type ssl.truststore.certificates ssl.truststore.location
    ssl.truststore.password ssl.truststore.type
    """
)
"""Settings whose translation depends on other settings: several of Java's settings, and confluent-kafka's token callback."""

KNOWN_NAMES = NAMES | frozenset(RENAMED) | frozenset(REFUSED_SETTINGS) | STRUCTURED
"""All known names except those of callbacks, as suggestions for a misspelled name."""

ASSIGNORS: Mapping[str, str] = {
    "range": "range",
    "roundrobin": "roundrobin",
    "cooperative-sticky": "cooperative-sticky",
    "org.apache.kafka.clients.consumer.RangeAssignor": "range",
    "org.apache.kafka.clients.consumer.RoundRobinAssignor": "roundrobin",
    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor": "cooperative-sticky",
}
"""librdkafka's assignors, by name and by Java class."""

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
"""The SASL mechanisms that confluent-kafka's packages support."""

MECHANISM_NAMES = "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER"
"""`MECHANISMS`, for messages."""

_COMMON = "org.apache.kafka.common.security."

LOGIN_MODULES: Mapping[str, tuple[str, ...]] = {
    _COMMON + "plain.PlainLoginModule": ("PLAIN",),
    _COMMON + "scram.ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    _COMMON + "oauthbearer.OAuthBearerLoginModule": ("OAUTHBEARER",),
}
"""Java's login modules, each with its mechanisms."""

OIDC_CLASSES = frozenset(
    {
        _COMMON + "oauthbearer.OAuthBearerLoginCallbackHandler",
        _COMMON + "oauthbearer.secured.OAuthBearerLoginCallbackHandler",
    }
)
"""Java's login callback handlers that fetch a token from `sasl.oauthbearer.token.endpoint.url`."""

JWT_RETRIEVERS: Mapping[str, str] = {
    _COMMON + "oauthbearer.DefaultJwtRetriever": "client_credentials",
    _COMMON + "oauthbearer.ClientCredentialsJwtRetriever": "client_credentials",
    _COMMON + "oauthbearer.JwtBearerJwtRetriever": "urn:ietf:params:oauth:grant-type:jwt-bearer",
}
"""Java's token retrievers, each with its grant type."""

CLASSIC_ONLY = ("heartbeat.interval.ms", "partition.assignment.strategy", "session.timeout.ms")
"""Settings that exist only with `group.protocol=classic`."""

AT_MOST: tuple[tuple[str, int, str, int], ...] = (
    ("heartbeat.interval.ms", 1_000, "session.timeout.ms", 45_000),
    ("session.timeout.ms", 45_000, "max.poll.interval.ms", 300_000),
    ("reconnect.backoff.ms", 0, "reconnect.backoff.max.ms", 10_000),
    ("retry.backoff.ms", 100, "retry.backoff.max.ms", 1_000),
)
"""Pairs of durations in ms, each with its default in this package. The first must not exceed the second.

Our default for `reconnect.backoff.ms` adapts to the user's maximum, so it is listed as 0.
"""
