"""`make broker`: runs the development broker in the foreground."""

from __future__ import annotations

import signal
import sys
import time
from types import FrameType

import click

from devtools import program
from devtools.broker.cluster import Cluster
from devtools.broker.jars import KAFKA_VERSION

_LOOK_EVERY_S = 0.5
"""How often the command checks that all nodes are still running."""


@click.command(name="broker")
@click.option("--nodes", type=click.Choice(["1", "3"]), default="1", show_default=True, help="The number of nodes.")
@click.option(
    *("--version", "version_"),
    metavar="VERSION",
    default=KAFKA_VERSION,
    show_default=True,
    help="A version such as 4.1.0, or a series such as 3.9.",
)
@click.option("--data", metavar="FOLDER", help="Keep the data in this folder. Default: a temporary folder, deleted at the end.")
@click.option("--port", type=click.IntRange(1, 65535), help="The port of a single node. Default: a free one.")
def broker(nodes: str, version_: str | None, data: str | None, port: int | None) -> None:
    """Run Apache Kafka on 127.0.0.1 until Ctrl-C, and print its address for clients.

    The first start downloads Kafka's jars, about 95 MB, which takes about half a minute. A later start takes seconds.
    """
    if port is not None and nodes != "1":
        raise click.UsageError("--port is for a single node; three nodes use free ports.")
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with Cluster(int(nodes), version_, data, progress=_say, port=port) as cluster:
            click.echo(f"bootstrap.servers={cluster.bootstrap_servers}")
            sys.stdout.flush()
            _wait_for_the_end(cluster)
    except KeyboardInterrupt:
        _say("stopped")


def _wait_for_the_end(cluster: Cluster) -> None:
    while all(node.running for node in cluster.nodes):
        time.sleep(_LOOK_EVERY_S)
    dead = next(node for node in cluster.nodes if not node.running)
    raise click.ClickException(f"Node {dead.id} has ended. The end of its log:\n{dead.last_lines()}")


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    # Do what Ctrl-C does, so that the context manager stops the nodes.
    raise KeyboardInterrupt


def _say(line: str) -> None:
    click.echo(line, err=True)


if __name__ == "__main__":
    program.run(broker, "python -m devtools.broker")
