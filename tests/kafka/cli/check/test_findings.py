"""`groupkafka check`: files, brokers, TLS and login."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner

from spark_groupsource.cli.main import main
from tests.kafka.cli.check.conftest import Check, query
from tests.support.secured import WRONG, Secured


@pytest.mark.usefixtures("given_up_soon")
def test_after_a_wrong_password_nothing_more_is_checked(secured: Secured, check: Check) -> None:
    checked = check(query("open-any", secured.login("PLAIN", WRONG)))
    assert checked.exit_code == 1
    assert [line[:2] for line in checked.lines] == [("ok", "options"), ("error", "security")]
    assert "kafka.sasl.password" in checked.errors[0][2]


@pytest.mark.usefixtures("given_up_soon")
def test_a_certificate_that_is_not_trusted_is_reported_with_the_setting(secured: Secured, check: Check) -> None:
    login = {**secured.login("PLAIN"), "kafka.ssl.truststore.location": str(secured.folder / "client.pem")}
    checked = check(query("open-any", login))
    assert checked.exit_code == 1
    assert [line[:2] for line in checked.errors] == [("error", "security")]
    assert "kafka.ssl.truststore" in checked.errors[0][2]
    checked = check(query("open-any", {**login, "kafka.enable.ssl.certificate.verification": "false"}))
    assert checked.level("security") == "warning"
    assert "Remove kafka.enable.ssl.certificate.verification=false" in checked.of("security")[0][2]
    assert "is trusted" not in checked.output


@pytest.mark.usefixtures("given_up_soon")
def test_without_a_broker_nothing_more_is_checked(check: Check) -> None:
    begin = time.monotonic()
    checked = check(query("orders", {"kafka.bootstrap.servers": "127.0.0.1:1"}))
    assert time.monotonic() - begin < 20
    assert checked.exit_code == 1
    assert [line[:2] for line in checked.lines] == [("ok", "options"), ("error", "brokers")]
    assert "Check kafka.bootstrap.servers" in checked.errors[0][2]


def test_a_file_that_is_no_text_or_is_refused_by_the_client_is_an_error(
    check: Check, tmp_path: Path, plain: Mapping[str, str]
) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    shown = CliRunner().invoke(main, ["check", "--conf", str(tmp_path / "bytes")])
    assert shown.exit_code == 1
    assert "cannot be read: it is not UTF-8 text" in shown.output
    tls = {
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": "/no/such/ca.pem",
    }
    checked = check(query("orders", {**plain, **tls}))
    assert checked.failed == ["options"]
    assert checked.errors[0][2].startswith("/no/such/ca.pem: there is no such file")
