"""Runs the development broker, a cluster of one node or three."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.cimpl import NewTopic

from devtools.broker.addresses import Identity, choose_identity, read_identity, write_identity
from devtools.broker.config import HOST, listeners, rack_of_node
from devtools.broker.ivy import Progress
from devtools.broker.jars import KAFKA_VERSION, KafkaJars, kafka_jars
from devtools.broker.java import find_java
from devtools.broker.node import JVM_OPTIONS, Node
from devtools.broker.ports import free_ports
from devtools.broker.ready import knows_leaders, quiet_client, wait_for_coordinator
from devtools.errors import BrokerStartError
from spark_groupsource.patience import Deadline

if TYPE_CHECKING:
    from typing_extensions import Self

_TOPIC_LIMIT_S = 60.0
_ASK_S = 10.0
"""The time limit of one request to create a topic."""

_MOST_STARTS = 5
"""How often a start is attempted if another process takes one of its ports."""


class Cluster:
    """Apache Kafka in KRaft mode on 127.0.0.1, for tests, demonstrations and development.

    As a context manager it starts and stops itself. If this process ends in any way, even by SIGKILL, the nodes are killed and a
    temporary data folder is deleted. Only one thread may use a cluster at a time.

    Args:
        nodes: 1 or 3. Each node is a broker and a controller.
        version: an exact version (`4.1.0`), or a series (`3.9`) for its newest release. `None` for the newest 4.x that can be
            downloaded.
        data_dir: a folder for the data; `None` for a temporary folder, which is deleted at `stop`.
        config: broker settings for all nodes. They override all other settings.
        progress: called with a line of text at each step; `None` for no output.
        port: the client port of a single node; `None` for a free port. A named `data_dir` keeps its ports.
        protocols: security protocols with which a single node listens in addition to PLAINTEXT, each on a free port (see
            `address`). Their certificates, mechanisms and users are in `config`.
        jvm_options: more options for each node's JVM.
        racks: the rack of each node (`broker.rack`). With racks, consumers may read from the replica in their own rack.
    """

    def __init__(
        self,
        nodes: int = 1,
        version: str | None = KAFKA_VERSION,
        data_dir: str | Path | None = None,
        config: Mapping[str, str] | None = None,
        progress: Progress | None = None,
        port: int | None = None,
        protocols: Sequence[str] = (),
        jvm_options: Sequence[str] = (),
        racks: Sequence[str] = (),
    ) -> None:
        if nodes not in (1, 3):
            raise ValueError(f"nodes is {nodes}: a cluster has 1 node or 3")
        if (port is not None or protocols) and nodes != 1:
            raise ValueError("port and protocols are for a single node; three nodes take free ports, and listen with PLAINTEXT")
        if racks and len(racks) != nodes:
            raise ValueError(f"racks has {len(racks)} names for {nodes} nodes: name the rack of each node")
        self._count = nodes
        self._wanted = version
        self._data_dir = Path(data_dir).absolute() if data_dir is not None else None
        self._config = dict(config or {})
        self._progress: Progress = progress or (lambda _line: None)
        self._port = port
        self._protocols = tuple(protocols)
        self._jvm_options = tuple(jvm_options)
        self._racks = [rack_of_node(rack) for rack in racks] or [{}] * nodes
        self._more_ports: dict[str, int] = {}
        self._java = ""
        self._jars: KafkaJars | None = None
        self._identity: Identity | None = None
        self._nodes: list[Node] = []
        self._remove_folder: weakref.finalize[..., Cluster] | None = None

    @property
    def nodes(self) -> list[Node]:
        """The nodes, sorted by id. Empty before `start` and after `stop`."""
        return list(self._nodes)

    @property
    def bootstrap_servers(self) -> str:
        """The addresses for clients, separated by commas. Raises RuntimeError before the first start."""
        return self._known_identity().bootstrap_servers

    def address(self, protocol: str) -> str:
        """Return the address for clients with one of `protocols`.

        Raises:
            KeyError: The cluster was not started, or does not listen with this protocol.
        """
        return f"{HOST}:{self._more_ports[protocol]}"

    @property
    def version(self) -> str:
        """The exact version of Apache Kafka. Raises RuntimeError before the first start."""
        return self._resolved().version

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        """Download the jars if they are not in the cache, start all nodes, and return when each of them answers.

        Raises:
            BrokerStartError: There is no Java or no such version, the folder belongs to another cluster, a port is in use, or a
                node crashes or does not answer. In the last case, the message has the end of the node's log.
            RuntimeError: The cluster is already started.
        """
        if self._nodes:
            raise RuntimeError("the cluster is already started")
        self._java = find_java()
        self._jars = kafka_jars(self._java, self._wanted, self._progress)
        self._progress(f"starting Apache Kafka {self._jars.version}, nodes: {self._count}")
        for _ in range(_MOST_STARTS):
            if self._start_nodes():
                self._progress(f"ready at {self.bootstrap_servers}")
                return
            self._progress("another process has taken a port; trying others")
        raise BrokerStartError(
            f"The broker was not started: in each of {_MOST_STARTS} attempts another process took one of its ports. Try again."
        )

    def stop(self) -> None:
        """Stop all nodes. If the data is temporary, kill them and delete the data."""
        if self._data_dir is not None:
            # Stop all nodes together. If they stopped one by one, the last controllers would wait for a quorum that no longer
            # exists.
            for node in self._nodes:
                node.send_stop()
            for node in self._nodes:
                node.stop()
        self._end(remove=True)

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None, replication: int | None = None
    ) -> None:
        """Create a topic, and return when every running node knows the leaders of all its partitions.

        Args:
            name: the name of the topic.
            partitions: the number of partitions.
            config: settings of the topic.
            replication: the number of replicas; `None` for one on each node.

        Raises:
            KafkaException: The brokers reject the topic.
            TimeoutError: There are no leaders after a minute.
        """
        replicas = replication if replication is not None else self._count
        topic = NewTopic(name, num_partitions=partitions, replication_factor=replicas, config=dict(config or {}))
        limit = Deadline(_TOPIC_LIMIT_S)
        self._create(topic, limit)
        for node, address in zip(self._nodes, self._known_identity().nodes, strict=True):
            while node.running and not knows_leaders(address, name, partitions):
                if limit.over:
                    raise TimeoutError(f"node {node.id} knows no leaders of {name} after {_TOPIC_LIMIT_S:.0f} s")
                time.sleep(0.02)

    def _create(self, topic: NewTopic, limit: Deadline) -> None:
        # Use a new client for each attempt: a node that was paused reports no controller, and a client with this answer waits for
        # a controller without asking again.
        asked_before = False
        while True:
            client = quiet_client(self.bootstrap_servers)
            try:
                client.create_topics([topic], request_timeout=_ASK_S)[topic.topic].result()
            except KafkaException as refused:
                code = refused.args[0].code()
                if asked_before and code == KafkaError.TOPIC_ALREADY_EXISTS:
                    return
                # A node on a busy machine may miss its heartbeats. Then it gets no replicas for a moment.
                fenced = code == KafkaError.INVALID_REPLICATION_FACTOR and topic.replication_factor <= self._count
                if not (fenced or code == KafkaError._TIMED_OUT) or limit.over:
                    raise
                asked_before = True
                time.sleep(0.1 if fenced else 0)
            else:
                return

    def tool(self, main_class: str, *arguments: str) -> list[str]:
        """Return the command line of one of Kafka's own tools, in the cluster's version.

        Args:
            main_class: for example `org.apache.kafka.tools.consumer.group.ConsumerGroupCommand`.
            arguments: the arguments of the tool.
        """
        logging = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
        return [self._java, "-Xmx256m", *JVM_OPTIONS, logging, "-cp", self._resolved().classpath, main_class, *arguments]

    def _resolved(self) -> KafkaJars:
        if self._jars is None:
            raise RuntimeError("the cluster has not been started")
        return self._jars

    def _known_identity(self) -> Identity:
        if self._identity is None:
            raise RuntimeError("the cluster has not been started")
        return self._identity

    def _start_nodes(self) -> bool:
        """Start all nodes; return False if another process has taken a port that was free before."""
        temporary = self._data_dir is None
        folder = self._open_folder()
        try:
            identity = choose_identity(self._count, self._port, read_identity(folder))
            if not temporary:
                write_identity(folder, identity)
            self._identity = identity
            chosen = [port for address in identity.nodes for port in (address.port, address.controller_port)]
            more = free_ports(len(self._protocols), chosen_before=chosen)
            self._more_ports = dict(zip(self._protocols, more, strict=True))
            self._nodes = [
                Node(
                    self._java,
                    self._resolved(),
                    identity,
                    index,
                    folder / f"node-{index + 1}",
                    temporary=temporary,
                    jvm_options=self._jvm_options,
                )
                for index in range(self._count)
            ]
            for node, address, rack in zip(self._nodes, identity.nodes, self._racks, strict=True):
                node.configure({**listeners(address, self._more_ports), **rack, **self._config})
                node.launch()
            for node in self._nodes:
                node.wait_until_answers({other.id for other in self._nodes})
            wait_for_coordinator(identity.bootstrap_servers, self._nodes[0].check_alive)
        except BrokerStartError:
            taken = any(node.port_was_taken() for node in self._nodes)
            # The error refers to the log, so the log must stay.
            self._end(remove=taken or not self._nodes)
            if taken:
                return False
            raise
        except BaseException:
            self._end(remove=True)
            raise
        return True

    def _open_folder(self) -> Path:
        if self._data_dir is not None:
            self._data_dir.mkdir(parents=True, exist_ok=True)
            return self._data_dir
        folder = Path(tempfile.mkdtemp(prefix="groupkafka-broker-"))
        self._remove_folder = weakref.finalize(self, _remove, folder, os.getpid())
        return folder

    def _end(self, *, remove: bool) -> None:
        for node in self._nodes:
            node.kill()
        self._nodes = []
        if self._remove_folder is not None:
            if remove:
                self._remove_folder()
            else:
                self._remove_folder.detach()
            self._remove_folder = None


def _remove(folder: Path, owner: int) -> None:
    # A fork of the owner may end before the owner does. It must not delete the data.
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
