"""The files of conf/ are what their readers expect: YAML of the right shape, options that the source takes, secrets nowhere.

tests/spark/test_conf.py runs those that can be run here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from spark_groupsource import read_properties
from spark_groupsource.options.model import Options

CONF = Path(__file__).parents[3] / "conf"
KUBERNETES = {one["kind"]: one for one in yaml.safe_load_all((CONF / "kubernetes" / "orders.yaml").read_text())}
BUNDLE = yaml.safe_load((CONF / "databricks" / "databricks.yml").read_text())
JOBS = yaml.safe_load((CONF / "databricks" / "resources" / "orders.yml").read_text())["resources"]
TASKS = [task for job in JOBS["jobs"].values() for task in job["tasks"]]
DOCKERFILE = (CONF / "kubernetes" / "Dockerfile").read_text()
CONFIG_MAP: dict[str, str] = KUBERNETES["ConfigMap"]["data"]
(CONTAINER,) = KUBERNETES["StatefulSet"]["spec"]["template"]["spec"]["containers"]

PROPERTIES = {
    "orders.properties": (CONF / "orders.properties").read_text(),
    "databricks/orders.properties": (CONF / "databricks" / "orders.properties").read_text(),
    "kubernetes/orders.yaml": CONFIG_MAP["orders.properties"],
}


ENVIRONMENT = {"KAFKA_PASSWORD", "GROUP_INSTANCE_ID"}
"""What the programs' environment has to have."""


@pytest.fixture
def parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Options]:
    """Reads options as conf/orders.py does."""

    def parse(text: str) -> Options:
        (tmp_path / "orders.properties").write_text(text)
        for name in ENVIRONMENT:
            monkeypatch.setenv(name, f"value-of-{name}")
        return Options.parse(read_properties(tmp_path / "orders.properties"), "stream")

    return parse


@pytest.mark.parametrize("name", PROPERTIES)
def test_the_options_are_options_of_a_stream(name: str, parsed: Callable[[str], Options]) -> None:
    options = parsed(PROPERTIES[name])
    assert options.subscribe == ("orders",)
    assert options.group_id == "billing"


def test_what_is_commented_out_are_options_too(parsed: Callable[[str], Options]) -> None:
    text, found = re.subn(r"(?m)^#(?=\S+ *= )", "", PROPERTIES["orders.properties"])
    assert found == 4
    assert parsed(text).kafka["sasl.mechanism"] == "SCRAM-SHA-512"


@pytest.mark.parametrize("name", ["databricks/orders.properties", "kubernetes/orders.yaml"])
def test_password_and_instance_id_come_from_the_environment(name: str, parsed: Callable[[str], Options]) -> None:
    options = parsed(PROPERTIES[name])
    assert options.kafka["sasl.password"] == "value-of-KAFKA_PASSWORD"
    assert options.kafka["group.instance.id"] == "value-of-GROUP_INSTANCE_ID"


def test_no_file_holds_a_secret() -> None:
    for file in CONF.rglob("*"):
        if file.is_file() and file.suffix not in (".json", ".pyc"):
            assert not re.search(r"(?i)(password|secret|token)\w* *[=:] *[\"']?\w{3,}", values_of(file)), file


def values_of(file: Path) -> str:
    """The file without comments and references."""
    lines = (line for line in file.read_text().splitlines() if not line.lstrip().startswith("# "))
    return "\n".join(re.sub(r"\{\{secrets/.*?\}\}|\$\{env:\w+\}|key: password", "", line) for line in lines)


def test_each_line_of_spark_defaults_is_a_setting() -> None:
    for text in ((CONF / "spark-defaults.conf").read_text(), CONFIG_MAP["spark-defaults.conf"]):
        lines = [line for line in text.splitlines() if line and not line.startswith("#")]
        assert lines
        assert all(re.fullmatch(r"spark\.[\w.]+ +\S+", line) for line in lines), lines


# Kubernetes and KEDA.


def test_keda_scales_the_stateful_set_by_the_lag_of_the_group_that_its_queries_join(parsed: Callable[[str], Options]) -> None:
    scaled = KUBERNETES["ScaledObject"]["spec"]
    options = parsed(CONFIG_MAP["orders.properties"])
    target = scaled["scaleTargetRef"]
    assert (target["kind"], target["apiVersion"]) == ("StatefulSet", KUBERNETES["StatefulSet"]["apiVersion"])
    assert target["name"] == KUBERNETES["StatefulSet"]["metadata"]["name"]
    assert "replicas" not in KUBERNETES["StatefulSet"]["spec"], "that is KEDA's"
    (trigger,) = scaled["triggers"]
    metadata = trigger["metadata"]
    assert trigger["type"] == "kafka"
    assert all(isinstance(value, str) for value in metadata.values()), "KEDA takes strings only"
    assert metadata["consumerGroup"] == options.group_id
    assert metadata["bootstrapServers"] == options.kafka["bootstrap.servers"]
    assert (metadata["topic"],) == options.subscribe
    assert metadata["offsetResetPolicy"] == options.starting_offsets
    assert metadata["sasl"].replace("_sha", "-sha-").upper() == options.kafka["sasl.mechanism"]
    assert (metadata["tls"] == "enable") == (options.kafka["security.protocol"].lower() == "sasl_ssl")
    assert int(metadata["lagThreshold"]) > 2 * (options.max_offsets_per_trigger or 0), "a running micro-batch counts as lag"


def test_kedas_credentials_are_those_of_the_queries() -> None:
    authentication = KUBERNETES["TriggerAuthentication"]
    (trigger,) = KUBERNETES["ScaledObject"]["spec"]["triggers"]
    assert trigger["authenticationRef"]["name"] == authentication["metadata"]["name"]
    given = {one["parameter"]: (one["name"], one["key"]) for one in authentication["spec"]["secretTargetRef"]}
    assert given.keys() == {"username", "password"}
    (password,) = (one["valueFrom"]["secretKeyRef"] for one in CONTAINER["env"] if one["name"] == "KAFKA_PASSWORD")
    assert given["password"] == (password["name"], password["key"])


def test_a_pod_is_a_static_member_with_a_checkpoint_that_outlives_it() -> None:
    spec = KUBERNETES["StatefulSet"]["spec"]
    environment = {one["name"]: one for one in CONTAINER["env"]}
    assert environment.keys() - {"SPARK_CONF_DIR"} == ENVIRONMENT
    assert environment["GROUP_INSTANCE_ID"]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.name"
    assert spec["persistentVolumeClaimRetentionPolicy"]["whenScaled"] == "Retain"
    (claim,) = spec["volumeClaimTemplates"]
    mounts = {one["name"]: one["mountPath"] for one in CONTAINER["volumeMounts"]}
    *_, options, checkpoint, output = json.loads(re.findall(r"(?m)^CMD (.*)$", DOCKERFILE)[0])
    data = mounts[claim["metadata"]["name"]]
    assert checkpoint.startswith(f"{data}/")
    assert output.startswith(f"{data}/")
    assert options == f"{mounts['conf']}/orders.properties"
    assert environment["SPARK_CONF_DIR"]["value"] == mounts["conf"]


# The Databricks bundle.


def test_the_bundles_files_are_there() -> None:
    folder = CONF / "databricks"
    assert all(list(folder.glob(pattern)) for pattern in BUNDLE["include"])
    assert all((folder / path).exists() for path in BUNDLE["sync"]["paths"])
    for task in TASKS:
        program = task["spark_python_task"]
        assert (folder / "resources" / program["python_file"]).resolve() == CONF / "orders.py"
        options, checkpoint, output = program["parameters"]
        # What is uploaded has the folder above the bundle, conf/, for its root: orders.py is there.
        assert (CONF / options.removeprefix("${workspace.file_path}/")).exists()
        assert {checkpoint.split("/")[0], output.split("/")[0]} == {"${var.data}"}


def test_each_job_is_a_static_member_with_a_checkpoint_of_its_own() -> None:
    environments = [task["new_cluster"]["spark_env_vars"] for task in TASKS]
    assert all(environment.keys() == ENVIRONMENT for environment in environments)
    for own in (
        [environment["GROUP_INSTANCE_ID"] for environment in environments],
        [task["spark_python_task"]["parameters"][1] for task in TASKS],
        [task["spark_python_task"]["parameters"][2] for task in TASKS],
    ):
        assert len(set(own)) == len(JOBS["jobs"]) == 2


def test_the_password_is_in_the_bundles_secret_scope() -> None:
    for task in TASKS:
        scope, key = re.findall(r"\{\{secrets/(.+)/(.+)\}\}", task["new_cluster"]["spark_env_vars"]["KAFKA_PASSWORD"])[0]
        assert scope == JOBS["secret_scopes"]["kafka"]["name"]
        assert f"put-secret {scope} {key}" in (CONF / "databricks" / "resources" / "orders.yml").read_text()


def test_every_variable_of_the_bundle_is_declared_and_used() -> None:
    text = "".join(file.read_text() for file in (CONF / "databricks").rglob("*.yml"))
    assert set(re.findall(r"\$\{var\.(\w+)\}", text)) == BUNDLE["variables"].keys()
