"""Tables of what is known about the settings of Kafka clients.

They list librdkafka's own properties, and the settings of Java's consumer that are renamed, rewritten or refused here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

PROPERTIES: Mapping[str, str] = dict(
    line.split(maxsplit=1)
    for line in """
        allow.auto.create.topics                            bool
        api.version.fallback.ms                             0..604800000
        api.version.request                                 bool
        api.version.request.timeout.ms                      1..300000
        bootstrap.servers                                   text
        broker.address.family                               any|v4|v6
        broker.address.ttl                                  0..86400000
        broker.version.fallback                             text
        check.crcs                                          bool
        client.dns.lookup                                   use_all_dns_ips|resolve_canonical_bootstrap_servers_only
        client.id                                           text
        client.rack                                         text
        connections.max.idle.ms                             0..2147483647
        coordinator.query.interval.ms                       1..3600000
        debug                                               flags
        enable.metrics.push                                 bool
        enable.random.seed                                  bool
        enable.sasl.oauthbearer.unsecure.jwt                bool
        enable.ssl.certificate.verification                 bool
        fetch.error.backoff.ms                              0..300000
        fetch.max.bytes                                     0..2147483135
        fetch.min.bytes                                     1..100000000
        fetch.queue.backoff.ms                              0..300000
        fetch.wait.max.ms                                   0..300000
        group.id                                            text
        group.instance.id                                   text
        group.protocol                                      classic|consumer
        group.remote.assignor                               text
        heartbeat.interval.ms                               1..3600000
        https.ca.location                                   text
        https.ca.pem                                        text
        isolation.level                                     read_uncommitted|read_committed
        log.connection.close                                bool
        log.thread.name                                     bool
        log_level                                           0..7
        max.in.flight.requests.per.connection               1..1000000
        max.partition.fetch.bytes                           1..1000000000
        max.poll.interval.ms                                1..86400000
        message.copy.max.bytes                              0..1000000000
        message.max.bytes                                   1000..1000000000
        metadata.max.age.ms                                 1..86400000
        metadata.recovery.rebootstrap.trigger.ms            0..2147483647
        metadata.recovery.strategy                          none|rebootstrap
        partition.assignment.strategy                       text
        queued.max.messages.kbytes                          1..2097151
        queued.min.messages                                 1..10000000
        receive.message.max.bytes                           1000..2147483647
        reconnect.backoff.max.ms                            0..3600000
        reconnect.backoff.ms                                0..3600000
        retry.backoff.max.ms                                1..300000
        retry.backoff.ms                                    1..300000
        sasl.mechanism                                      text
        sasl.oauthbearer.assertion.algorithm                RS256|ES256
        sasl.oauthbearer.assertion.claim.aud                text
        sasl.oauthbearer.assertion.claim.exp.seconds        1..2147483647
        sasl.oauthbearer.assertion.claim.iss                text
        sasl.oauthbearer.assertion.claim.jti.include        bool
        sasl.oauthbearer.assertion.claim.nbf.seconds        0..2147483647
        sasl.oauthbearer.assertion.claim.sub                text
        sasl.oauthbearer.assertion.file                     text
        sasl.oauthbearer.assertion.jwt.template.file        text
        sasl.oauthbearer.assertion.private.key.file         text
        sasl.oauthbearer.assertion.private.key.passphrase   text
        sasl.oauthbearer.assertion.private.key.pem          text
        sasl.oauthbearer.client.id                          text
        sasl.oauthbearer.client.secret                      text
        sasl.oauthbearer.config                             text
        sasl.oauthbearer.extensions                         text
        sasl.oauthbearer.grant.type                         client_credentials|urn:ietf:params:oauth:grant-type:jwt-bearer
        sasl.oauthbearer.metadata.authentication.type       none|azure_imds|aws_iam
        sasl.oauthbearer.method                             default|oidc
        sasl.oauthbearer.scope                              text
        sasl.oauthbearer.sub.claim.name                     text
        sasl.oauthbearer.token.endpoint.url                 text
        sasl.password                                       text
        sasl.username                                       text
        security.protocol                                   plaintext|ssl|sasl_plaintext|sasl_ssl
        session.timeout.ms                                  1..3600000
        socket.connection.setup.timeout.ms                  1000..2147483647
        socket.keepalive.enable                             bool
        socket.max.fails                                    0..1000000
        socket.nagle.disable                                bool
        socket.receive.buffer.bytes                         0..100000000
        socket.send.buffer.bytes                            0..100000000
        socket.timeout.ms                                   10..300000
        ssl.ca.location                                     text
        ssl.ca.pem                                          text
        ssl.certificate.location                            text
        ssl.certificate.pem                                 text
        ssl.cipher.suites                                   text
        ssl.crl.location                                    text
        ssl.curves.list                                     text
        ssl.endpoint.identification.algorithm               none|https
        ssl.key.location                                    text
        ssl.key.password                                    text
        ssl.key.pem                                         text
        ssl.keystore.location                               text
        ssl.keystore.password                               text
        ssl.providers                                       names
        ssl.sigalgs.list                                    text
        topic.metadata.propagation.max.ms                   0..3600000
        topic.metadata.refresh.fast.interval.ms             1..60000
        topic.metadata.refresh.interval.ms                  -1..3600000
        topic.metadata.refresh.sparse                       bool
    """.strip().splitlines()
)
"""The settings of librdkafka that a user may set, and what each accepts. A test compares it with the installed library."""

DEBUG_FLAGS = frozenset(
    re.findall(
        r"\w+",
        "generic broker topic metadata feature queue msg protocol cgrp security fetch interceptor plugin consumer admin eos mock "
        "assignor conf telemetry all",
    )
)
"""The values that `debug` may list."""

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
    ("connections.max.idle.ms", "-1"): "0",
    ("socket.receive.buffer.bytes", "-1"): "0",
    ("socket.send.buffer.bytes", "-1"): "0",
    ("ssl.endpoint.identification.algorithm", ""): "none",
}
"""Values that Java and librdkafka write differently, by librdkafka's name."""

BLANK_IS_UNSET = frozenset({"client.rack", "client.id"})
"""Settings whose default in Java is the empty text."""

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
        "commit . Every other partition continues where the query, or the group, stopped"
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

CALLBACKS = frozenset(
    re.findall(
        r"\S+",
        """
        background_event_cb closesocket_cb connect_cb consume_cb default_topic_conf dr_cb dr_msg_cb error_cb
        interceptors log_cb oauthbearer_token_refresh_cb offset_commit_cb on_commit opaque open_cb
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

KNOWN_NAMES = frozenset(PROPERTIES) | frozenset(RENAMED) | frozenset(REFUSED_SETTINGS) | STRUCTURED
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
