"""Runs a command, and kills it when the process that asked for it is gone, however that one ended.

Between a Python process and its broker's JVM. It is run by its path (only the standard library is imported, and a start
takes some ten milliseconds):

    python watch.py PARENT_PID FOLDER_TO_REMOVE|- COMMAND...

Standard input is a pipe that only the parent writes to: it ends when the parent does. A copy of the parent made by
fork() would hold it open, so the parent's pid is looked at as well. The command's pid goes to standard output, what the
command prints to standard error. A parent that was killed cannot remove its temporary folder any more: that is done here.
"""

from __future__ import annotations

import contextlib
import functools
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable

LOOK_AT_PARENT_EVERY_S = 0.5


def main() -> int:
    """Run until the command has ended or the parent is gone; return the command's exit status."""
    parent, folder, command = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    awake_read, awake_write = os.pipe()
    os.set_blocking(awake_write, False)
    signal.set_wakeup_fd(awake_write)
    signal.signal(signal.SIGCHLD, lambda _signal, _frame: None)
    # A session of its own: Ctrl-C in the terminal is the parent's to handle, and the whole group can be killed.
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=2,
        start_new_session=True,
        preexec_fn=_die_with_watcher(),  # noqa: PLW1509 - unsafe with threads, of which there are none
    )
    with contextlib.suppress(BrokenPipeError):
        os.write(1, f"{child.pid}\n".encode("ascii"))
    while child.poll() is None:
        readable, _, _ = select.select([0, awake_read], [], [], LOOK_AT_PARENT_EVERY_S)
        if awake_read in readable:
            os.read(awake_read, 512)
        if (0 in readable and not os.read(0, 512)) or os.getppid() != parent:
            # SIGKILL, because a stopped process (SIGSTOP) gets no other signal.
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            if folder != "-":
                shutil.rmtree(folder, ignore_errors=True)
                # The nodes' common folder goes with the last of them.
                with contextlib.suppress(OSError):
                    os.rmdir(os.path.dirname(folder))
            return 1
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def _die_with_watcher() -> Callable[[], object] | None:
    """On Linux, let the kernel kill the command when this process is killed; elsewhere nothing does.

    The kernel looks at the thread that forked. Here that is the only one, so it ends with the process and not before.
    """
    if not sys.platform.startswith("linux"):
        return None
    try:
        import ctypes

        prctl = ctypes.CDLL(None, use_errno=True).prctl
    except (ImportError, OSError, AttributeError):
        return None
    pr_set_pdeathsig = 1
    return functools.partial(prctl, pr_set_pdeathsig, int(signal.SIGKILL), 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main())
