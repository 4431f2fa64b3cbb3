"""Merges the user's settings with our defaults for each Kafka client. No other module does this.

The source creates three kinds of clients, and the sink two more. Each kind gets its settings from a function here, and adds only
callbacks:

- `client_settings`: the driver's clients that ask brokers about topics, offsets and groups.
- `member_settings`: the driver's group member, which fetches no records.
- `consumer_settings`: the tasks' consumers, which read ranges and never join the group.
- `producer_settings`: the producers of the sink's tasks.
- `request_settings`: the clients that read and commit the sink's tokens.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from spark_groupsource.kafka_settings.client_id import CLIENT_ID
from spark_groupsource.kafka_settings.tables import PRODUCER_NAMES

EVERY_CLIENT: Mapping[str, str] = {
    "client.id": CLIENT_ID,
    "connections.max.idle.ms": "180000",
    "isolation.level": "read_uncommitted",
    "log_level": "4",
    "socket.keepalive.enable": "true",
}
"""Our defaults for every client.

Networks silently drop idle connections; cloud networks do so after 240 s or more. The Java client closes an idle connection after
540 s, but librdkafka never does. The Java client also turns on keepalive.

The default of `isolation.level` in Java, and so in Spark, is `read_uncommitted`; in librdkafka it is `read_committed`. Log level
4 means warnings. By default, librdkafka writes more to stderr.
"""

RECONNECT = "reconnect.backoff.ms"

RECONNECT_MS = 1000
"""Our default for `reconnect.backoff.ms`.

While a client has no connection, librdkafka tries one broker after another, with a pause of half this time between attempts. The
pause is never longer than 1 s, and does not double. `reconnect.backoff.max.ms` limits a different pause, for a single broker that
is down while others are up.

A new client first connects to a bootstrap server, and then to the brokers that this server names. In between, a request that any
broker may answer waits for this pause. So our clients begin with a request to a particular broker, for which librdkafka connects
immediately: a member and a task ask a partition's leader, and `make_client` makes an AdminClient ask the controller.
"""

RECONNECT_MS_OF_A_TOKEN = 20
"""Our default for `reconnect.backoff.ms` for the clients that read and commit the sink's tokens. Each task creates several of
them, and each would wait for the pause. With this short pause, a new client that finds no broker tries to connect 70 times a
second, so a task creates these clients only when its producer has just reached the brokers. A client that has been connected
before tries less than once a second while its broker is away."""

EVERY_MEMBER: Mapping[str, str] = {
    "group.protocol": "classic",
    "max.poll.interval.ms": "300000",
    "topic.metadata.refresh.interval.ms": "10000",
}
"""Our defaults for the group member. It notices new topics and partitions within 10 s instead of 5 minutes."""

CLASSIC_MEMBER: Mapping[str, str] = {
    "heartbeat.interval.ms": "1000",
    "partition.assignment.strategy": "cooperative-sticky",
}
"""Our defaults for a member under the classic protocol. Heartbeats are frequent, because only they report a rebalance."""

CONSUMER: Mapping[str, str] = {
    "check.crcs": "true",
    "fetch.wait.max.ms": "10",
    "queued.min.messages": "5000",
    "fetch.queue.backoff.ms": "1",
    "socket.timeout.ms": "30000",
    "receive.message.max.bytes": "2147483647",
}
"""Our defaults for a task's consumer.

`check.crcs` is true in Java. In librdkafka, it is false, so rows from a damaged batch are returned or silently dropped.

`socket.timeout.ms` is 30 s in Java (`request.timeout.ms`) and 60 s in librdkafka. A leader that hangs delays a task by this much.

A Fetch that waits at the end of a log delays all other requests on its connection, including those for the next range. By
default, it waits for 500 ms (`fetch.wait.max.ms`).

librdkafka sends the next Fetch when fewer records than `queued.min.messages` are left. With the default of 100,000, prefetched
records fall out of the CPU caches before they are read, which doubles the CPU time.

`receive.message.max.bytes` limits a response, and also the decompressed size of a batch with zstd, but not with other codecs. The
Java client has no such limit, so this is the largest possible value. A lower one would save memory only with zstd, because a
response has at most `max.partition.fetch.bytes` anyway, or one batch of any size.
"""

OFFSETS_ARE_OURS: Mapping[str, str] = {
    "auto.offset.reset": "error",
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
}
"""Fixed settings for every consumer: only our code chooses and commits offsets, and a lost offset must be an error."""

FIXED_OF_A_CONSUMER: Mapping[str, str] = {"enable.partition.eof": "true"}
"""Fixed settings for a task's consumer, which must notice when it reaches the end of the partition."""

FOR_MEMBERS_ONLY = frozenset(
    {
        "coordinator.query.interval.ms",
        "group.id",
        "group.instance.id",
        "group.protocol",
        "group.remote.assignor",
        "heartbeat.interval.ms",
        "max.poll.interval.ms",
        "partition.assignment.strategy",
        "session.timeout.ms",
    }
)
"""The user's settings that only the member needs. A task's consumer also gets `group.id`, because ACLs may depend on it."""

FOR_CONSUMERS_ONLY = frozenset(
    {
        "check.crcs",
        "client.rack",
        "fetch.error.backoff.ms",
        "fetch.max.bytes",
        "fetch.min.bytes",
        "fetch.queue.backoff.ms",
        "fetch.wait.max.ms",
        "max.partition.fetch.bytes",
        "queued.max.messages.kbytes",
        "queued.min.messages",
        "receive.message.max.bytes",
    }
)
"""The user's settings for clients that fetch records. Other clients do not get them.

The member fetches no records. With a rack, it would rejoin its group whenever the partitions' racks change, as they do when a
broker goes down or comes back. `isolation.level` is not included, because it also applies when the member reads the group's
offsets.
"""


def client_settings(kafka: Mapping[str, str]) -> dict[str, str]:
    """Return the settings for a client that is neither the member nor a task's consumer. They contain secrets.

    Args:
        kafka: The user's `kafka.*`, translated for librdkafka.
    """
    of_user = {name: value for name, value in kafka.items() if name not in FOR_MEMBERS_ONLY | FOR_CONSUMERS_ONLY}
    return {**EVERY_CLIENT, **_backoff(RECONNECT, RECONNECT_MS, kafka), **of_user}


def member_settings(kafka: Mapping[str, str], ignored_topics: Collection[str] = ()) -> dict[str, str]:
    """Return the settings for the driver's group member. They contain secrets.

    Args:
        kafka: The user's `kafka.*`, translated for librdkafka.
        ignored_topics: Topics that a pattern must not match. Do not use this under KIP-848, where the broker resolves the
            pattern: it would assign a topic that only librdkafka ignores, and the topic would never be read.
    """
    return {
        **EVERY_CLIENT,
        **EVERY_MEMBER,
        **_backoff(RECONNECT, RECONNECT_MS, kafka),
        **(CLASSIC_MEMBER if kafka.get("group.protocol") != "consumer" else {}),
        **({"topic.blacklist": ",".join(f"^{topic}$" for topic in ignored_topics)} if ignored_topics else {}),
        **{name: value for name, value in kafka.items() if name not in FOR_CONSUMERS_ONLY},
        **OFFSETS_ARE_OURS,
    }


def consumer_settings(kafka: Mapping[str, str], buffer_bytes: int) -> dict[str, str]:
    """Return the settings for a task's consumer. They contain secrets.

    librdkafka prefetches up to 1/32 of the buffer, and exceeds this by at most one response. This is enough, because it sends one
    Fetch at a time for each partition. Records prefetched beyond that would fall out of the CPU caches, and those after the end
    of the range would never be used.

    A response has at most 1/64 of the buffer, compressed as in the log, unless a single batch is larger. This limit saves memory,
    because librdkafka decompresses a whole response in one step and creates a structure for each record. A smaller limit would be
    slower.

    Args:
        kafka: The user's `kafka.*`, translated for librdkafka.
        buffer_bytes: How many bytes of records a task may hold (`kafkaConsumer.bufferBytes`).
    """
    of_user = {name: value for name, value in kafka.items() if name not in FOR_MEMBERS_ONLY or name == "group.id"}
    return {
        **EVERY_CLIENT,
        **CONSUMER,
        **_backoff(RECONNECT, RECONNECT_MS, kafka),
        "queued.max.messages.kbytes": str(buffer_bytes // 32 // 1024),
        "max.partition.fetch.bytes": str(buffer_bytes // 64),
        **of_user,
        **OFFSETS_ARE_OURS,
        **FIXED_OF_A_CONSUMER,
    }


PRODUCER: Mapping[str, str] = {
    "acks": "-1",
    "enable.idempotence": "true",
    "linger.ms": "5",
    "max.in.flight.requests.per.connection": "5",
    "message.max.bytes": "1048576",
    "message.timeout.ms": "120000",
    "partitioner": "murmur2_random",
    "queue.buffering.max.kbytes": "32768",
    "queue.buffering.max.messages": "1000000",
    "socket.timeout.ms": "30000",
    "sticky.partitioning.linger.ms": "0",
}
"""Our defaults for a task's producer, in addition to `RECONNECT_MS`. They are the same as the Java producer's, except for the
batch size (sink/topics.py). To choose a key's partition, Java uses the murmur2 hash, but librdkafka's default is another
hash.

In librdkafka, rows without a key go to the same partition for 10 ms by default (`sticky.partitioning.linger.ms`). In that time, a
task writes thousands of rows, so some partitions would get up to 500 times more rows than others. With 0, each row goes to a
random partition, but the native producer chooses a partition for several rows at a time (`gs_partition` in native/_outlet.c)."""

TRANSACTION_TIMEOUT_MS = 120_000
"""The default for `transaction.timeout.ms`. `read_committed` consumers wait this long if a task crashes and is not retried. The
timeout cannot be shorter, because librdkafka requires it to cover a row's delivery timeout."""

LONGEST_TRANSACTION_MS = 900_000
"""The `transaction.timeout.ms` for a task that has already exceeded the default. This is the brokers' default limit
(`transaction.max.timeout.ms`)."""

RETRY = "retry.backoff.ms"

RETRY_MS_IN_TRANSACTIONS = 20
"""Our default for `retry.backoff.ms` for a producer that writes in transactions. In librdkafka and in Java, it is 100.

A coordinator answers a commit before it has written the end of the transaction to all partitions. Until then, it refuses to begin
the next transaction (CONCURRENT_TRANSACTIONS). librdkafka retries after 20 ms for records, but for the token's offset, it waits
for this time, which doubles up to `retry.backoff.max.ms`."""

IDEMPOTENT: Mapping[str, range] = {
    "acks": range(-1, 0),
    "max.in.flight.requests.per.connection": range(1, 6),
    "retries": range(1, 2**31),
}
"""The values of these settings with which a producer can be idempotent, in Java (KIP-679) and in librdkafka."""


def producer_settings(kafka: Mapping[str, str], *, exactly_once: bool) -> dict[str, str]:
    """Return the settings for a task's producer, except for its transactional id. They contain secrets.

    Args:
        kafka: The user's `kafka.*`, translated for librdkafka.
        exactly_once: Whether the producer writes in transactions.
    """
    defaults = {name: value for name, value in EVERY_CLIENT.items() if name != "isolation.level"}
    settings = {**defaults, **PRODUCER, **_backoff(RECONNECT, RECONNECT_MS, kafka)}
    if exactly_once:
        settings |= _backoff(RETRY, RETRY_MS_IN_TRANSACTIONS, kafka)
        longest = max(TRANSACTION_TIMEOUT_MS, *(int(kafka.get(name, 0)) for name in ("message.timeout.ms", "socket.timeout.ms")))
        settings["transaction.timeout.ms"] = str(min(longest, LONGEST_TRANSACTION_MS))
    elif "enable.idempotence" not in kafka and excludes_idempotence(kafka):
        # The Java producer does the same (KIP-679).
        settings["enable.idempotence"] = "false"
    merged = {**settings, **kafka}
    timeout = int(merged.get("transaction.timeout.ms", TRANSACTION_TIMEOUT_MS))
    # Without these settings, librdkafka would use nearly the transaction timeout, and wait 15 minutes for a broker that hangs.
    for name in ("message.timeout.ms", "socket.timeout.ms"):
        if name not in kafka:
            merged[name] = str(min(int(PRODUCER[name]), timeout))
    # In Java, one setting limits both how long a client waits for an answer and how long brokers wait for their replicas.
    merged["request.timeout.ms"] = merged["socket.timeout.ms"]
    return merged


def excludes_idempotence(kafka: Mapping[str, str]) -> tuple[str, ...]:
    """Return the user's settings that rule out an idempotent producer, as `name=value`."""
    return tuple(f"kafka.{name}={kafka[name]}" for name, fits in IDEMPOTENT.items() if int(kafka.get(name, fits[0])) not in fits)


def request_settings(kafka: Mapping[str, str]) -> dict[str, str]:
    """Return the settings for the clients that read and commit the sink's tokens. They contain secrets.

    Args:
        kafka: The user's `kafka.*` for a producer, translated for librdkafka.
    """
    of_user = {name: value for name, value in kafka.items() if name not in PRODUCER_NAMES}
    return {**client_settings(of_user), **({} if RECONNECT in of_user else _backoff(RECONNECT, RECONNECT_MS_OF_A_TOKEN, of_user))}


def _backoff(name: str, ours_ms: int, kafka: Mapping[str, str]) -> dict[str, str]:
    """Return our default for a pause, or the user's maximum if that is shorter, because librdkafka refuses a longer pause."""
    longest = name.removesuffix(".ms") + ".max.ms"
    return {name: str(min(ours_ms, int(kafka.get(longest, ours_ms))))}
