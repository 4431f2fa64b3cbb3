"""Who is let in and what they may do, against a broker with TLS, SASL and ACLs: by the driver's clients and by the readers."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from spark_groupsource.brokers import group_offsets, topics
from spark_groupsource.brokers.group_offsets import GroupOffsets
from spark_groupsource.brokers.topics import Topics
from spark_groupsource.errors import AuthenticationFailed, BrokerUnavailable, GroupKafkaError, NotAuthorized, OptionError
from spark_groupsource.fetch import pure_consumer as pure
from spark_groupsource.fetch.choice import fetch
from spark_groupsource.fetch.contract import FetchRange, Reader
from spark_groupsource.options.model import Options
from spark_groupsource.partition import TopicPartition
from spark_groupsource.query import session
from spark_groupsource.query.cycle import Cycle
from tests.support.secured import PASSWORD, WRONG, Secured, secured_broker
from tests.support.streams import MemberStream, member_stream
from tests.support.waiting import until

LOGINS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OIDC", "oauth_cb")

MakeTopic = Callable[[str], str]


pytestmark = pytest.mark.usefixtures("no_secret_is_logged")


def reading(topic: str, login: Mapping[str, str], **more: str) -> dict[str, str]:
    """The options of a query that reads the topic in a group of the same name."""
    return {
        "kafka.group.id": topic,
        "subscribe": topic,
        "kafka.log_level": "0",
        "kafkaConsumer.pollTimeoutMs": "3000",
        "assignmentTimeout": "20s",
        "handoff.drainTimeout": "10s",
        **login,
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def records_of(options: Mapping[str, str], read: Reader = fetch) -> int:
    """What an executor's task reads of the first partition."""
    parsed = Options.parse(options)
    topic = (parsed.subscribe or ("",))[0]
    return sum(batch.num_rows for batch in read(FetchRange(topic, 0, 0, 10), parsed.fetch_settings()))


def pure_records_of(options: Mapping[str, str]) -> int:
    """The same with the pure reader."""
    return records_of(options, pure.read)


def look_up(options: Mapping[str, str]) -> object:
    """What a driver asks first."""
    parsed = Options.parse(options)
    return Topics(parsed.client_settings(), parsed, read_committed=False, patience_s=4).partitions()


def join(options: Mapping[str, str]) -> object:
    """What a driver does next."""
    stream = MemberStream("alice", options).start()
    try:
        assert stream.member.wait_joined(20), f"not joined: {stream.member.last_trouble}"
    finally:
        stream.member.close()
    return stream


def error_of(step: Callable[[Mapping[str, str]], object], options: Mapping[str, str]) -> GroupKafkaError:
    with pytest.raises(GroupKafkaError) as caught:
        step(options)
    return caught.value


@pytest.fixture
def refusals(secured: Secured, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[GroupKafkaError]]:
    """The errors of some steps, by default of all four, which are made at the same time; none of them shows a secret."""
    monkeypatch.setattr(topics, "REQUEST_TIMEOUT_S", 10.0)
    monkeypatch.setattr(topics, "FIRST_TIMEOUTS_S", (5.0,))
    monkeypatch.setattr(session, "AT_START_S", 1.0)

    def collect(options: Mapping[str, str], *steps: Callable[[Mapping[str, str]], object]) -> list[GroupKafkaError]:
        with ThreadPoolExecutor() as pool:
            errors = list(pool.map(lambda step: error_of(step, options), steps or (look_up, join, records_of, pure_records_of)))
        shown = " ".join(f"{error} {error!r} {error.__cause__}" for error in errors)
        assert [secret for secret in secured.secrets() if secret in shown] == []
        return errors

    return collect


Refusals = Callable[..., list[GroupKafkaError]]


@pytest.mark.parametrize("login", LOGINS)
def test_with_the_right_secret_a_member_joins_and_a_reader_reads(secured: Secured, secured_topic: MakeTopic, login: str) -> None:
    options = reading(secured_topic("open-"), secured.login(login))
    with member_stream("alice", options) as stream:
        stream.until_owning(1)
        assert records_of(options) == 10
        assert pure_records_of(options) == 10


def test_so_it_does_under_kip_848(secured: Secured, secured_topic: MakeTopic) -> None:
    options = reading(secured_topic("open-"), secured.login("oauth_cb"), kafka_group_protocol="consumer")
    with member_stream("alice", options) as stream:
        stream.until_owning(1)


def test_a_client_certificate_says_who_the_user_is(secured: Secured, secured_topic: MakeTopic) -> None:
    options = reading(secured_topic("open-"), {**secured.tls(), **secured.certificate()})
    with member_stream("alice", options) as stream:
        stream.until_owning(1)
        assert records_of(options) == 10


@pytest.mark.parametrize(
    ("login", "setting"),
    [
        ("SCRAM-SHA-512", "kafka.sasl.password"),
        ("OIDC", "kafka.sasl.oauthbearer.client.secret"),
        ("oauth_cb", "kafka.oauth_cb"),
    ],
)
def test_a_wrong_secret_is_reported_as_such(secured: Secured, refusals: Refusals, login: str, setting: str) -> None:
    for error in refusals(reading("open-any", secured.login(login, WRONG))):
        assert type(error) is AuthenticationFailed
        assert setting in str(error)


@pytest.mark.parametrize("name", ["tests.support.tokens:no_such", "no.such.module:callback"])
def test_a_callback_that_is_none_is_named(secured: Secured, refusals: Refusals, name: str) -> None:
    for error in refusals(reading("open-any", {**secured.login("oauth_cb"), "kafka.oauth_cb": name})):
        assert type(error) is OptionError
        assert f"kafka.oauth_cb = '{name}'" in str(error)


def at_another_name(secured: Secured) -> dict[str, str]:
    servers = secured.cluster.address("SASL_SSL").replace("127.0.0.1", "localhost")
    return {**secured.login("PLAIN"), "kafka.bootstrap.servers": servers, "kafka.broker.address.family": "v4"}


def without_tls(secured: Secured) -> dict[str, str]:
    login = {name: value for name, value in secured.login("PLAIN").items() if ".ssl." not in name}
    return {**login, "kafka.bootstrap.servers": secured.cluster.bootstrap_servers, "kafka.security.protocol": "SASL_PLAINTEXT"}


REFUSED: dict[str, tuple[Callable[[Secured], dict[str, str]], str]] = {
    "a token of somebody else": (
        lambda secured: {**secured.login("oauth_cb"), "kafka.oauth_cb": "tests.support.tokens:forged"},
        "with OAUTHBEARER, check the token",
    ),
    "an unknown authority": (
        lambda secured: {**secured.login("PLAIN"), "kafka.ssl.truststore.location": str(secured.folder / "client.pem")},
        "kafka.ssl.truststore",
    ),
    "a name that is not in the certificate": (at_another_name, "contains the host name that is in kafka.bootstrap.servers"),
    "no client certificate where one is needed": (Secured.tls, "kafka.ssl.keystore"),
    "a mechanism that the listener does not have": (without_tls, "kafka.sasl.mechanism"),
}


@pytest.mark.parametrize(("login", "said"), REFUSED.values(), ids=REFUSED)
def test_what_else_is_wrong_with_a_login_is_reported_as_such(
    secured: Secured, refusals: Refusals, login: Callable[[Secured], dict[str, str]], said: str
) -> None:
    for error in refusals(reading("open-any", login(secured))):
        assert type(error) is AuthenticationFailed
        assert said in str(error)


@pytest.mark.parametrize(("at", "protocol"), [("SASL_SSL", "PLAINTEXT"), ("PLAINTEXT", "SASL_SSL")])
def test_another_protocol_than_the_listeners_is_reported_as_such(
    secured: Secured, refusals: Refusals, at: str, protocol: str
) -> None:
    kinds = {name: value for name, value in secured.login("PLAIN").items() if protocol.startswith("SASL") or "sasl" not in name}
    login = {name: value for name, value in kinds.items() if protocol.endswith("SSL") or ".ssl." not in name}
    servers = secured.cluster.bootstrap_servers if at == "PLAINTEXT" else secured.cluster.address(at)
    options = reading("open-any", {**login, "kafka.bootstrap.servers": servers, "kafka.security.protocol": protocol})
    for error in refusals(options, look_up, records_of):
        assert type(error) is BrokerUnavailable
        assert "Check kafka.security.protocol" in str(error)


def test_a_missing_acl_on_the_group_is_reported_as_such(
    secured: Secured, secured_topic: MakeTopic, refusals: Refusals, protocol: str
) -> None:
    options = reading(
        secured_topic("open-"), secured.login("SCRAM-SHA-256"), kafka_group_id="closed", kafka_group_protocol=protocol
    )
    assert look_up(options)
    for error in refusals(options, join, first_plan):
        assert type(error) is NotAuthorized
        assert "closed" in str(error)
        assert "READ ACL on the group (kafka.group.id)" in str(error)


def test_a_missing_acl_on_the_group_that_is_heard_before_the_request_is_not_forgotten(
    secured: Secured, secured_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_offsets, "TRY_S", 1.0)
    topic = secured_topic("open-")
    options = Options.parse(reading(topic, secured.login("SCRAM-SHA-256"), kafka_group_id="closed"), "stream")
    offsets = GroupOffsets(options.client_settings(), "closed")
    # librdkafka reports it once. It need not have by now: then the request hears it.
    time.sleep(1.0)
    with pytest.raises(NotAuthorized, match="READ ACL on the group"):
        offsets.read([topic])
    offsets.close()


def first_plan(options: Mapping[str, str]) -> object:
    cycle = Cycle(Options.parse(options, "stream"))
    try:
        return cycle.plan(cycle.first(), limited=False)
    finally:
        cycle.stop()


def test_a_topic_that_may_not_be_described_is_named(secured: Secured, secured_topic: MakeTopic, refusals: Refusals) -> None:
    topic = secured_topic("closed-")
    options = reading(topic, secured.login("SCRAM-SHA-256"), kafka_group_id="open-any", failOnDataLoss="false")
    for error in refusals(options, look_up, first_plan, records_of, pure_records_of):
        assert type(error) is NotAuthorized
        assert topic in str(error)
        assert "READ ACL on the topic" in str(error)


def test_a_topic_that_may_be_described_and_not_read_is_named(
    secured: Secured, secured_topic: MakeTopic, refusals: Refusals, protocol: str
) -> None:
    topic = secured_topic("seen-")
    options = reading(topic, secured.login("SCRAM-SHA-256"), kafka_group_id="open-any", kafka_group_protocol=protocol)
    assert look_up(options)
    for error in refusals(options, first_plan, records_of):
        assert type(error) is NotAuthorized
        assert topic in str(error)
        assert "READ ACL on the topic" in str(error)


def test_a_token_is_renewed_before_it_expires(
    secured: Secured, secured_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = reading(secured_topic("open-"), secured.login("oauth_cb"))
    monkeypatch.setattr(secured.tokens, "valid_s", 5)
    with member_stream("alice", options) as stream:
        stream.until_owning(1)
        issued = len(secured.tokens.issued)
        until(lambda: len(secured.tokens.issued) > issued, "another token")
        assert stream.owned


@pytest.mark.long
def test_a_login_that_was_refused_for_a_while_is_not_why_a_broker_does_not_answer_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a query that has outlived a change of passwords would end with the first broker that is restarted."""
    monkeypatch.setattr(topics, "REQUEST_TIMEOUT_S", 3.0)
    monkeypatch.setattr(topics, "FIRST_TIMEOUTS_S", ())
    with secured_broker(tmp_path) as own:
        (node,) = own.cluster.nodes
        own.cluster.create_topic("open-orders", 1)
        options = Options.parse(reading("open-orders", own.login("SCRAM-SHA-512")))
        partition = TopicPartition("open-orders", 0)
        known = Topics(options.client_settings(), options, read_committed=False, patience_s=3600)

        def ends() -> object:
            return _outcome(lambda: known.ends([partition]))

        until(lambda: ends() == {partition: 0}, "the first answer")

        own.set_scram_password(WRONG)
        node.kill()
        node.start()
        until(lambda: isinstance(ends(), AuthenticationFailed), "the login to be refused")
        own.set_scram_password(PASSWORD)
        until(lambda: ends() == {partition: 0}, "the login to be let in again")

        node.pause()
        assert ends() == {}
        assert type(_outcome(known.partitions)) is BrokerUnavailable


def _outcome(step: Callable[[], object]) -> object:
    """What the step returns, or the error that it raises."""
    try:
        return step()
    except GroupKafkaError as error:
        return error
