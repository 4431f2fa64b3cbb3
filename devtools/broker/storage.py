"""Formats the nodes' log folders.

`kafka-storage format` starts a JVM and takes most of a second for each node. Except for the ids in `meta.properties`, its result
depends only on the version. So it runs once for each version, and a node's folder is a copy with new ids.
"""

from __future__ import annotations

import base64
import shutil
import subprocess
import uuid
from pathlib import Path

from devtools.errors import BrokerStartError

META = "meta.properties"
"""The file that makes a folder a formatted log folder."""


def new_id() -> str:
    """Return an id in Kafka's form: a random UUID in URL-safe base64, without padding and without a leading dash."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode("ascii").rstrip("=")
        if not text.startswith("-"):
            return text


def write_properties(path: Path, properties: dict[str, str]) -> None:
    """Write a Java properties file. A value may contain any character."""
    lines = []
    for key, value in properties.items():
        # In a value, only line ends and backslashes have a meaning. Java reads the rest as Latin-1.
        escaped = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
        escaped = "".join(char if ord(char) < 128 else f"\\u{ord(char):04x}" for char in escaped)
        lines.append(f"{key}={escaped}\n")
    path.write_text("".join(lines), encoding="ascii")


def make_template(java: str, classpath: str, version: str, folder: Path) -> None:
    """Format `folder` with Kafka's own tool, as a template for the folders of nodes.

    Raises:
        BrokerStartError: The tool failed. The message has its output.
    """
    properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": "1@127.0.0.1:1",
        "listeners": "PLAINTEXT://127.0.0.1:2,CONTROLLER://127.0.0.1:1",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": str(folder),
    }
    file = folder.parent / "format.properties"
    write_properties(file, properties)
    argv = [java, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
    argv += ["-cp", classpath, "kafka.tools.StorageTool", "format", "--cluster-id", new_id(), "--config", str(file)]
    outcome = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    if outcome.returncode != 0 or not (folder / META).exists():
        raise BrokerStartError(f"Kafka {version} could not format a log folder:\n{outcome.stdout}{outcome.stderr}")
    file.unlink()


def format_log_folder(template: Path, folder: Path, node_id: int, cluster_id: str) -> None:
    """Make `folder` an empty log folder for one node. A folder that is already formatted is not changed."""
    if (folder / META).exists():
        return
    # meta.properties is written last, because it makes the folder a formatted one.
    shutil.copytree(template, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(META))
    ids = {"node.id": str(node_id), "cluster.id": cluster_id, "directory.id": new_id(), "version": "1"}
    write_properties(folder / META, ids)
