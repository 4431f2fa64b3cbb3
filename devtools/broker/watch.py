"""Runs a broker's JVM for a Python process, its parent, and kills the JVM when the parent ends in any way.

It is started by its path, imports only the standard library, and starts in about ten milliseconds:

    python watch.py PARENT_PID FOLDER_TO_REMOVE|- COMMAND...

Standard input is a pipe to which only the parent writes, so it ends when the parent ends. A fork of the parent would keep the
pipe open, so the watcher also checks the parent's pid. It prints the command's pid to standard output. The command's output
goes to standard error. A parent that was killed cannot delete its temporary folder, so the watcher does that.
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
    """Run until the command or the parent has ended; return the command's exit status."""
    parent, folder, command = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    awake_read, awake_write = os.pipe()
    os.set_blocking(awake_write, False)
    signal.set_wakeup_fd(awake_write)
    signal.signal(signal.SIGCHLD, lambda _signal, _frame: None)
    # A separate session: the parent handles Ctrl-C in the terminal, and the whole process group can be killed.
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
            # SIGKILL, because a process that is paused (SIGSTOP) handles no other signal.
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            if folder != "-":
                shutil.rmtree(folder, ignore_errors=True)
                # The last node also deletes the common folder of all nodes.
                with contextlib.suppress(OSError):
                    os.rmdir(os.path.dirname(folder))
            return 1
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def _die_with_watcher() -> Callable[[], object] | None:
    """On Linux, return a function that has the kernel kill the command when this process is killed. Elsewhere return `None`.

    The kernel kills the command when the thread that forked ends. This process has only one thread.
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
