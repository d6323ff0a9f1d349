"""Run as a script between us and a process we start: ``python -I -S guard.py PARENT ARGV...``.

It leads the new session, starts ARGV below itself and waits. When PARENT dies, however it dies, the kernel sends the
guard SIGUSR1 (prctl PR_SET_PDEATHSIG, Linux) and the whole group is killed. Asking for that signal in a
``preexec_fn`` instead is unsafe beside threads. Interrupts go to the group; the guard itself outlives them.
"""

from __future__ import annotations

import os
import resource
import signal
import sys

PR_SET_PDEATHSIG = 1
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def die_with_parent(parent: int, number: int) -> None:
    import ctypes

    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:  # it died before we asked
        os._exit(1)


def end_group(*_: object) -> None:
    os.killpg(os.getpgrp(), signal.SIGKILL)


def child(guard: int, argv: list[str]) -> None:
    die_with_parent(guard, signal.SIGKILL)
    for number in (*FORWARDED, signal.SIGUSR1):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        os.write(2, f"{argv[0]}: {error.strerror}\n".encode())
        os._exit(127)


def leave_as(status: int) -> None:
    """Ends the way the child ended, so that whoever waits for the guard reads the child's own status."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))


def main(parent: int, argv: list[str]) -> None:
    signal.signal(signal.SIGUSR1, end_group)
    for number in FORWARDED:
        signal.signal(number, signal.SIG_IGN)
    die_with_parent(parent, signal.SIGUSR1)
    guard = os.getpid()
    pid = os.fork()
    if pid == 0:
        child(guard, argv)
    _, status = os.waitpid(pid, 0)
    leave_as(status)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
