"""conf/orders.py as a pod of conf/kubernetes/orders.yaml runs it: its options, its settings and its environment, and SIGTERM."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from spark_groupsource.brokers.group_admin import GroupAdmin
from spark_groupsource.cli.claimed import claimed_in
from tests.support.page_programs import replaced
from tests.support.secured import PASSWORD, USER, Secured
from tests.support.sinks import written
from tests.support.spark_process import ROOT, running
from tests.support.waiting import until

POD = {one["kind"]: one for one in yaml.safe_load_all((ROOT / "conf" / "kubernetes" / "orders.yaml").read_text())}


@pytest.mark.long
def test_a_pod_that_is_stopped_owes_nothing(secured: Secured, secured_topic: Callable[[str], str], tmp_path: Path) -> None:
    topic = secured_topic("open-")
    files = POD["ConfigMap"]["data"]
    ours = {
        "= kafka:9093\n": f"= {secured.cluster.address('SASL_SSL')}\n",
        "kafka.group.id          = billing\n": f"kafka.group.id = {topic}\n",
        "kafka.sasl.username     = billing\n": f"kafka.sasl.username = {USER}\n",
        "= orders\n": f"= {topic}\n",
    }
    text = replaced(files["orders.properties"], ours, most=1)
    text += f"kafka.ssl.truststore.type = PEM\nkafka.ssl.truststore.location = {secured.folder / 'ca.pem'}\n"
    (tmp_path / "orders.properties").write_text(text)
    (tmp_path / "spark-defaults.conf").write_text(files["spark-defaults.conf"])
    program = [sys.executable, str(ROOT / "conf" / "orders.py")]
    arguments = [str(tmp_path / one) for one in ("orders.properties", "checkpoint", "output")]
    environment = {"SPARK_CONF_DIR": str(tmp_path), "GROUP_INSTANCE_ID": "orders-0", "KAFKA_PASSWORD": PASSWORD}
    with running("pod", tmp_path, [*program, *arguments], environment) as pod:
        until(lambda: pod.ended or len(written(tmp_path / "output")) == 10, "the records are there", 240)
        assert not pod.ended, pod.log()
        pod.terminate()
        log = pod.finish()
    assert written(tmp_path / "output") == [(0, offset) for offset in range(10)]
    assert not [secret for secret in secured.secrets() if secret in log]
    view = GroupAdmin({"bootstrap.servers": secured.cluster.bootstrap_servers}).describe(topic)
    assert (view.lag, claimed_in(view)) == (0, ())
