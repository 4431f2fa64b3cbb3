"""Tables of what is known about the settings of Kafka clients.

They list librdkafka's own properties, and the settings of Java's consumer that are renamed, rewritten or refused here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

NAMES = frozenset(
    re.findall(
        r"\S+",
        """
        allow.auto.create.topics api.version.fallback.ms api.version.request api.version.request.timeout.ms bootstrap.servers
        broker.address.family broker.address.ttl broker.version.fallback check.crcs client.dns.lookup client.id client.rack
        connections.max.idle.ms coordinator.query.interval.ms debug enable.metrics.push enable.random.seed
        enable.sasl.oauthbearer.unsecure.jwt enable.ssl.certificate.verification fetch.error.backoff.ms fetch.max.bytes
        fetch.min.bytes fetch.queue.backoff.ms fetch.wait.max.ms group.id group.instance.id group.protocol
        group.remote.assignor heartbeat.interval.ms https.ca.location https.ca.pem isolation.level log.connection.close
        log.thread.name log_level max.in.flight.requests.per.connection max.partition.fetch.bytes max.poll.interval.ms
        message.copy.max.bytes message.max.bytes metadata.max.age.ms metadata.recovery.rebootstrap.trigger.ms
        metadata.recovery.strategy partition.assignment.strategy queued.max.messages.kbytes queued.min.messages
        receive.message.max.bytes reconnect.backoff.max.ms reconnect.backoff.ms retry.backoff.max.ms retry.backoff.ms
        sasl.mechanism sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
        sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
        sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
        sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.jwt.template.file
        sasl.oauthbearer.assertion.private.key.file sasl.oauthbearer.assertion.private.key.passphrase
        sasl.oauthbearer.assertion.private.key.pem sasl.oauthbearer.client.id sasl.oauthbearer.client.secret
        sasl.oauthbearer.config sasl.oauthbearer.extensions sasl.oauthbearer.grant.type
        sasl.oauthbearer.metadata.authentication.type sasl.oauthbearer.method sasl.oauthbearer.scope
        sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url sasl.password sasl.username security.protocol
        session.timeout.ms socket.connection.setup.timeout.ms socket.keepalive.enable socket.max.fails socket.nagle.disable
        socket.receive.buffer.bytes socket.send.buffer.bytes socket.timeout.ms ssl.ca.location ssl.ca.pem
        ssl.certificate.location ssl.certificate.pem ssl.cipher.suites ssl.crl.location ssl.curves.list
        ssl.endpoint.identification.algorithm ssl.key.location ssl.key.password ssl.key.pem ssl.keystore.location
        ssl.keystore.password ssl.providers ssl.sigalgs.list topic.metadata.propagation.max.ms
        topic.metadata.refresh.fast.interval.ms topic.metadata.refresh.interval.ms topic.metadata.refresh.sparse
        """,
    )
)
"""librdkafka's settings that are known to be safe and useful here. A misspelt name is compared with them. librdkafka itself says
which others there are, and which values it takes (judge.py)."""

CHOICES: Mapping[str, tuple[str, ...]] = {
    "group.protocol": ("classic", "consumer"),
    "isolation.level": ("read_uncommitted", "read_committed"),
    "sasl.oauthbearer.method": ("default", "oidc"),
    "security.protocol": ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl"),
    "ssl.endpoint.identification.algorithm": ("none", "https"),
}
"""Settings that this package reads itself, with every value that it can read. In an option they may be in any case."""

NAMES_CODE = re.compile(r"plugin|librar|engine|provider|class|callback|module|_cb$")
"""A setting that only a newer librdkafka knows is not passed on with such a name: an option may not load code."""

RENAMED: Mapping[str, str] = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "metadata.broker.list": "bootstrap.servers",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "request.timeout.ms": "socket.timeout.ms",
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.oauthbearer.assertion.template.file": "sasl.oauthbearer.assertion.jwt.template.file",
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
    "send.buffer.bytes": "socket.send.buffer.bytes",
}
"""Other names of the same thing: Java's, and librdkafka's aliases."""

REWRITTEN: Mapping[tuple[str, str], str] = {
    ("acks", "all"): "-1",
    ("connections.max.idle.ms", "-1"): "0",
    ("socket.receive.buffer.bytes", "-1"): "0",
    ("socket.send.buffer.bytes", "-1"): "0",
    # In Java 0 is "at each poll", at most every `retry.backoff.ms`; in librdkafka "never".
    ("topic.metadata.refresh.interval.ms", "0"): "100",
    ("ssl.endpoint.identification.algorithm", ""): "none",
}
"""Values that Java and librdkafka write differently, by librdkafka's name."""

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
"""Numbers for which Java's range is wider than librdkafka's, by librdkafka's name. The nearest one that librdkafka takes does the
same for a user: a client asks more often, waits for an hour or a day at most, or fetches a little more or less at a time."""

BLANK_IS_UNSET = frozenset({"client.rack", "client.id"})
"""Settings whose default in Java is the empty text."""

PER_HOST = frozenset({"client.rack", "ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.keystore.location"})
"""Settings in which `${env:NAME}` is a variable of the process that makes the client: where its host is, and where the host has
files. An option must not show what is in the environment, so no setting is here whose value is shown. `client.id` is shown: in
librdkafka's log lines, in the ids of members and by the brokers. So is `bootstrap.servers`. Secrets are not here, either: an
executor gets them from `oauth_cb` or in a file. Nor is `ssl.crl.location`: what is revoked is the same on every host."""

LEFT_OUT_IF_UNSET = frozenset({"client.rack"})
"""Those that a client can do without. Without a file it would trust other certificates, or show none: that is an error."""

_COMMITS = "this source commits the offsets itself, after each micro-batch"
_NO_EFFECT = "it has no effect in librdkafka any more; remove it"
JAVA_CLASS = "it names a Java class, and there is no Java client here; remove it"
_JAVA_METRICS = "there are no Java client metrics here; remove it"
_JAVA_TLS = "OpenSSL provides TLS here, and negotiates the best protocol version that both sides have; remove it"
KERBEROS = (
    "Kerberos is not available: confluent-kafka's packages are built without GSSAPI. Use SCRAM-SHA-512, PLAIN or OAUTHBEARER "
    "with kafka.sasl.mechanism, or a client certificate"
)
_BROKER_ONLY = "it is for brokers, which verify tokens; remove it"
_TOKEN_REFRESH = "librdkafka decides itself when it fetches and refreshes tokens; remove it"  # noqa: S105
_SHARE_GROUPS = "it is for share groups, and this source is a member of a consumer group; remove it"
_UNREAD = "this source does not use what it enables; remove it"
_NATIVE_CODE = "it would load a library of native code, which an option may not do; remove it"
OAUTH_CALLBACK = "oauth_cb"
"""The setting that names the function for tokens, without the `kafka.` prefix."""
OAUTH_CALLBACK_HINT = "for other tokens set kafka.oauth_cb=package.module:function, a Python function with @oauth_callback"
_DESERIALIZERS = "are binary columns, as in Spark's own source: deserialize them with DataFrame operations"

REFUSED_SETTINGS: Mapping[str, str] = {
    "auto.commit.enable": _COMMITS,
    "auto.commit.interval.ms": _COMMITS,
    "auto.offset.reset": (
        "set the option startingOffsets to earliest or latest instead; it applies only to partitions for which the group has no "
        "commit. Every other partition continues where the query, or the group, stopped"
    ),
    "builtin.features": "it cannot be set; remove it",
    "config.providers": JAVA_CLASS,
    "consume.callback.max.messages": _UNREAD,
    "default.api.timeout.ms": "librdkafka has a limit for each request: set kafka.request.timeout.ms instead",
    "enable.auto.commit": _COMMITS,
    "enable.auto.offset.store": _COMMITS,
    "enable.partition.eof": "this source sets it itself where it needs it; remove it",
    "enabled_events": _UNREAD,
    "group.protocol.type": "it is always consumer; remove it. The rebalance protocol is kafka.group.protocol",
    "interceptor.classes": "interceptors may change records, so they are not safe; and " + JAVA_CLASS,
    "internal.termination.signal": _UNREAD,
    "internal.throw.on.fetch.stable.offset.unsupported": "it is internal to the Java client; remove it",
    "key.deserializer": "keys " + _DESERIALIZERS,
    "log.queue": _UNREAD,
    "max.poll.records": "tasks read ranges of offsets, not polls: set the option maxOffsetsPerTrigger, or remove it",
    "metric.reporters": _JAVA_METRICS,
    "metrics.num.samples": _JAVA_METRICS,
    "metrics.recording.level": _JAVA_METRICS,
    "metrics.sample.window.ms": _JAVA_METRICS,
    "auto.include.jmx.reporter": _JAVA_METRICS,
    "offset.store.method": _COMMITS,
    "offset.store.path": _COMMITS,
    "offset.store.sync.interval.ms": _COMMITS,
    "plugin.library.paths": _NATIVE_CODE,
    "reconnect.backoff.jitter.ms": _NO_EFFECT,
    "sasl.client.callback.handler.class": JAVA_CLASS,
    "sasl.kerberos.keytab": KERBEROS,
    "sasl.kerberos.kinit.cmd": KERBEROS,
    "sasl.kerberos.min.time.before.relogin": KERBEROS,
    "sasl.kerberos.principal": KERBEROS,
    "sasl.kerberos.service.name": KERBEROS,
    "sasl.kerberos.ticket.renew.jitter": KERBEROS,
    "sasl.kerberos.ticket.renew.window.factor": KERBEROS,
    "sasl.login.class": JAVA_CLASS,
    "sasl.login.connect.timeout.ms": _TOKEN_REFRESH,
    "sasl.login.read.timeout.ms": _TOKEN_REFRESH,
    "sasl.login.refresh.buffer.seconds": _TOKEN_REFRESH,
    "sasl.login.refresh.min.period.seconds": _TOKEN_REFRESH,
    "sasl.login.refresh.window.factor": _TOKEN_REFRESH,
    "sasl.login.refresh.window.jitter": _TOKEN_REFRESH,
    "sasl.login.retry.backoff.max.ms": _TOKEN_REFRESH,
    "sasl.login.retry.backoff.ms": _TOKEN_REFRESH,
    "sasl.oauthbearer.clock.skew.seconds": _BROKER_ONLY,
    "sasl.oauthbearer.expected.audience": _BROKER_ONLY,
    "sasl.oauthbearer.expected.issuer": _BROKER_ONLY,
    "sasl.oauthbearer.header.urlencode": "librdkafka has no such setting; remove it",
    "sasl.oauthbearer.jwks.endpoint.refresh.ms": _BROKER_ONLY,
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": _BROKER_ONLY,
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": _BROKER_ONLY,
    "sasl.oauthbearer.jwks.endpoint.url": _BROKER_ONLY,
    "sasl.oauthbearer.jwt.validator.class": JAVA_CLASS,
    "sasl.oauthbearer.scope.claim.name": "librdkafka has no such setting; remove it",
    "security.providers": JAVA_CLASS,
    "share.acknowledgement.mode": _SHARE_GROUPS,
    "share.acquire.mode": _SHARE_GROUPS,
    "socket.blocking.max.ms": _NO_EFFECT,
    "socket.connection.setup.timeout.max.ms": (
        "librdkafka does not lengthen this timeout: set kafka.socket.connection.setup.timeout.ms"
    ),
    "ssl.ca.certificate.stores": "it works on Windows only: set kafka.ssl.ca.location",
    "ssl.enabled.protocols": _JAVA_TLS,
    "ssl.engine.factory.class": JAVA_CLASS,
    "ssl.engine.id": _NATIVE_CODE,
    "ssl.engine.location": _NATIVE_CODE,
    "ssl.keymanager.algorithm": _JAVA_TLS,
    "ssl.protocol": _JAVA_TLS,
    "ssl.provider": _JAVA_TLS,
    "ssl.secure.random.implementation": _JAVA_TLS,
    "ssl.trustmanager.algorithm": _JAVA_TLS,
    "statistics.interval.ms": _UNREAD,
    "topic.blacklist": "write subscribePattern so that it does not match those topics",
    "topic.metadata.refresh.fast.cnt": _NO_EFFECT,
    "value.deserializer": "values " + _DESERIALIZERS,
}
"""Settings that are known and refused, and what to do instead."""

PRODUCER_ONLY = frozenset(
    re.findall(
        r"\S+",
        """
        acks batch.num.messages batch.size buffer.memory compression.codec compression.gzip.level compression.level
        compression.lz4.level compression.type compression.zstd.level delivery.report.only.error delivery.timeout.ms
        enable.gapless.guarantee enable.idempotence key.serializer linger.ms max.block.ms max.request.size
        message.send.max.retries message.timeout.ms metadata.max.idle.ms msg_order_cmp partitioner
        partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms partitioner.class
        partitioner.ignore.keys produce.offset.report queue.buffering.backpressure.threshold
        queue.buffering.max.kbytes queue.buffering.max.messages queue.buffering.max.ms queuing.strategy
        request.required.acks retries sticky.partitioning.linger.ms transaction.timeout.ms
        transaction.two.phase.commit.enable transactional.id value.serializer
        """,
    )
)
"""Settings of producers."""

CONSUMER_ONLY = frozenset(
    re.findall(
        r"\S+",
        """
        allow.auto.create.topics auto.commit.enable auto.commit.interval.ms auto.offset.reset check.crcs
        consume.callback.max.messages coordinator.query.interval.ms default.api.timeout.ms enable.auto.commit
        enable.auto.offset.store enable.partition.eof exclude.internal.topics fetch.error.backoff.ms fetch.max.bytes
        fetch.max.wait.ms fetch.message.max.bytes fetch.min.bytes fetch.queue.backoff.ms fetch.wait.max.ms group.id
        group.instance.id group.protocol group.protocol.type group.remote.assignor heartbeat.interval.ms isolation.level
        key.deserializer max.partition.fetch.bytes max.poll.interval.ms max.poll.records offset.store.method
        offset.store.path offset.store.sync.interval.ms partition.assignment.strategy queued.max.messages.kbytes
        queued.min.messages receive.message.max.bytes session.timeout.ms topic.blacklist value.deserializer
        """,
    )
)
"""Settings of consumers, in Java or in librdkafka."""

PRODUCER_NAMES = frozenset(
    re.findall(
        r"\S+",
        """
        acks batch.num.messages batch.size compression.level compression.type enable.idempotence linger.ms
        message.max.bytes message.timeout.ms partitioner queue.buffering.backpressure.threshold
        queue.buffering.max.kbytes queue.buffering.max.messages retries sticky.partitioning.linger.ms
        topic.metadata.propagation.max.ms transaction.timeout.ms
        """,
    )
)
"""librdkafka's settings of producers that are known to be safe and useful here."""

PRODUCER_RENAMED: Mapping[str, str] = {
    "compression.codec": "compression.type",
    "compression.gzip.level": "compression.level",
    "compression.lz4.level": "compression.level",
    "compression.zstd.level": "compression.level",
    "delivery.timeout.ms": "message.timeout.ms",
    "max.block.ms": "topic.metadata.propagation.max.ms",
    "max.request.size": "message.max.bytes",
    "message.send.max.retries": "retries",
    "queue.buffering.max.ms": "linger.ms",
    "request.required.acks": "acks",
}
"""Other names of the same thing: Java's, and librdkafka's aliases."""

_JAVA_PARTITIONER = (
    "there is no Java client here. Rows with a key go to the partition that Java's producer would choose; for another choice set "
    "kafka.partitioner to one of librdkafka's, or add the column partition"
)
_NO_ADAPTIVE = "librdkafka has no such choice of partitions; remove it"
_SERIALIZERS = "are binary or string columns, as in Spark's own sink: serialize them with DataFrame operations"

PRODUCER_REFUSED: Mapping[str, str] = {
    "enable.gapless.guarantee": "it is experimental in librdkafka; remove it",
    "delivery.report.only.error": "the sink sets it itself; remove it",
    "key.serializer": "keys " + _SERIALIZERS,
    "metadata.max.idle.ms": "librdkafka forgets topics by itself; remove it",
    "partitioner.adaptive.partitioning.enable": _NO_ADAPTIVE,
    "partitioner.availability.timeout.ms": _NO_ADAPTIVE,
    "partitioner.class": _JAVA_PARTITIONER,
    "partitioner.ignore.keys": _JAVA_PARTITIONER,
    "produce.offset.report": "the sink does not use what it enables; remove it",
    "queuing.strategy": "it may reorder records; remove it",
    "transaction.two.phase.commit.enable": "the sink needs no second phase; remove it",
    "transactional.id": "each task has one of its own: set the option transactionalIdPrefix",
    "value.serializer": "values " + _SERIALIZERS,
}
"""Settings of producers that are known and refused, and what to do instead."""

CALLBACKS = frozenset(
    re.findall(
        r"\S+",
        """
        background_event_cb closesocket_cb connect_cb consume_cb default.topic.config default_topic_conf dr_cb dr_msg_cb
        error_cb interceptors log_cb logger oauthbearer_token_refresh_cb offset_commit_cb on_commit on_delivery opaque open_cb
        partitioner_cb rebalance_cb resolve_cb socket_cb ssl.certificate.verify_cb ssl_ca ssl_certificate
        ssl_engine_callback_data ssl_key stats_cb throttle_cb
        """,
    )
)
"""Settings whose values are functions or objects in librdkafka or confluent-kafka. The text of an option cannot hold them."""

STRUCTURED = frozenset(
    re.findall(
        r"\S+",
        """
        oauth_cb sasl.jaas.config sasl.login.callback.handler.class sasl.oauthbearer.jwt.retriever.class
        ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.type ssl.truststore.certificates
        ssl.truststore.location ssl.truststore.password ssl.truststore.type
        """,
    )
)
"""Settings that are translated together with others: Java's, and the name of confluent-kafka's token callback."""

KNOWN_NAMES = NAMES | frozenset(RENAMED) | frozenset(REFUSED_SETTINGS) | STRUCTURED
"""All names but those that only producers or callbacks have. A misspelt name is compared with them."""

ASSIGNORS: Mapping[str, str] = {
    "range": "range",
    "roundrobin": "roundrobin",
    "cooperative-sticky": "cooperative-sticky",
    "org.apache.kafka.clients.consumer.RangeAssignor": "range",
    "org.apache.kafka.clients.consumer.RoundRobinAssignor": "roundrobin",
    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor": "cooperative-sticky",
}
"""The assignors that librdkafka has, by their names and their Java classes."""

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
"""The mechanisms of SASL that confluent-kafka's packages have."""

MECHANISM_NAMES = "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER"
"""`MECHANISMS`, for messages."""

_COMMON = "org.apache.kafka.common.security."

LOGIN_MODULES: Mapping[str, tuple[str, ...]] = {
    _COMMON + "plain.PlainLoginModule": ("PLAIN",),
    _COMMON + "scram.ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    _COMMON + "oauthbearer.OAuthBearerLoginModule": ("OAUTHBEARER",),
}
"""Java's login modules and the mechanisms that each serves."""

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
"""Java's token retrievers and the grant type that each uses."""

CLASSIC_ONLY = ("heartbeat.interval.ms", "partition.assignment.strategy", "session.timeout.ms")
"""Settings that exist only with `group.protocol=classic`."""

AT_MOST: tuple[tuple[str, int, str, int], ...] = (
    ("heartbeat.interval.ms", 1_000, "session.timeout.ms", 45_000),
    ("session.timeout.ms", 45_000, "max.poll.interval.ms", 300_000),
    ("reconnect.backoff.ms", 0, "reconnect.backoff.max.ms", 10_000),
    ("retry.backoff.ms", 100, "retry.backoff.max.ms", 1_000),
)
"""Pairs of durations (ms), each with the default of its clients here, of which the first may not exceed the second.

Our defaults of `reconnect.backoff.ms` never exceed the user's maximum, so they stand here as 0.
"""
