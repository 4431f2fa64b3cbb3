"""The reader's `checkpointLocation`: whether it can be read, and whether it is that of a query in this group."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from pydantic import ValidationError

from spark_groupsource.checkpoint.files import CheckpointFiles, without_password
from spark_groupsource.checkpoint.offset_log import plan_of, source_lines
from spark_groupsource.cli.check.findings import Finding, error, ok, warning
from spark_groupsource.cli.check.known import Source
from spark_groupsource.errors import CheckpointUnreadable, OffsetError
from spark_groupsource.handoff.plan_offset import PlanOffset, refuse_another_format
from spark_groupsource.options.model import Options
from spark_groupsource.timeouts import CHECK_STEP_S

OTHERWISE = """\
Until that is corrected, the claims of a finished micro-batch stay open until the next trigger, and its records count as lag, \
unless the driver's program reports it (spark_groupsource.register)."""


@dataclass(frozen=True)
class NewestBatch:
    """The newest micro-batch in the offset log of a checkpoint."""

    number: int
    plans: tuple[PlanOffset, ...]
    """The offsets of this package's sources in it. Empty if the query reads from other sources only."""
    finished: bool
    """Whether it is in the commit log."""
    refused: str | None = None
    """Why a query does not go on from an offset in it that another version of this package wrote."""


def read_checkpoint(source: Source) -> Iterator[Finding]:
    """Read the checkpoint, if the options name it. It is given up after CHECK_STEP_S."""
    location = source.options.checkpoint_location
    if location is None:
        return
    shown = without_password(location)
    answers: SimpleQueue[NewestBatch | OffsetError | None] = SimpleQueue()

    def read() -> None:
        try:
            answers.put(newest_batch(location))
        except CheckpointUnreadable as unreadable:
            answers.put(unreadable)
        except OffsetError as unknown:
            answers.put(OffsetError(f"{shown}: {unknown}"))

    # On a thread: a file system that does not answer cannot be interrupted.
    threading.Thread(target=read, name="groupkafka-checkpoint", daemon=True).start()
    try:
        answer = answers.get(timeout=CHECK_STEP_S)
    except Empty:
        answer = OffsetError(f"{shown} did not answer within {CHECK_STEP_S:.0f} s")
    if isinstance(answer, OffsetError):
        text = f"checkpointLocation = {str(answer).rstrip('.')}. {OTHERWISE}"
        yield warning("checkpoint", f"{text} The location must be readable on the driver's machine.")
    else:
        yield judge_checkpoint(source.options, f"checkpointLocation = {shown}", answer)


def judge_checkpoint(options: Options, named: str, newest: NewestBatch | None) -> Finding:
    """Return whether a checkpoint is that of a query in this group.

    Args:
        options: the query's options.
        named: the location as text, without its password.
        newest: the newest micro-batch in the offset log; `None` if there is none.
    """
    if newest is None:
        return ok("checkpoint", f"{named}: has no micro-batch yet (folder offsets), as before the first start of a query")
    if newest.refused is not None:
        return error("checkpoint", f"{named}: the query would fail. {newest.refused}")
    if not newest.plans:
        text = f"micro-batch {newest.number} has no offset of this source, so it is the checkpoint of another query. {OTHERWISE}"
        return warning("checkpoint", f"{named}: {text} Set it to the writer's checkpointLocation.")
    mine = [plan for plan in newest.plans if plan.group == options.group_id]
    if not mine:
        groups = " and ".join(sorted({plan.group for plan in newest.plans}))
        return error(
            "checkpoint",
            f"{named}: micro-batch {newest.number} is of group {groups}, not of {options.group_id}. The query would fail. Set "
            "it to the writer's checkpointLocation, and check kafka.group.id.",
        )
    streams = " and ".join(f"plan {plan.plan} of stream {plan.stream}" for plan in mine)
    state = "is finished" if newest.finished else "is not finished"
    return ok("checkpoint", f"{named}: it can be read; micro-batch {newest.number} is {streams}, and {state}")


def newest_batch(location: str) -> NewestBatch | None:
    """Return the newest micro-batch of a checkpoint; `None` if the offset log has none, or there is no such folder.

    Args:
        location: the query's `checkpointLocation`.

    Raises:
        CheckpointUnreadable: The files cannot be read.
        OffsetError: As `offset_log.source_lines` does.
    """
    files = CheckpointFiles(location)
    logged = files.batches("offsets")
    if not logged:
        return None
    newest = max(logged)
    lines = list(source_lines(files.read(f"offsets/{newest}")).values())
    plans = []
    for line in lines:
        with suppress(ValidationError):
            plans.append(PlanOffset.model_validate_json(line))
    refused = next(filter(None, map(_refused, lines)), None)
    return NewestBatch(newest, tuple(plans), files.exists(f"commits/{newest}"), refused)


def _refused(line: str) -> str | None:
    """Return why a query does not go on from this offset, if another version of this package wrote it."""
    try:
        offset = json.loads(line)
        if plan_of(offset) is not None:
            refuse_another_format(offset)
    except (ValueError, RecursionError):
        return None
    except OffsetError as refused:
        return str(refused)
    return None
