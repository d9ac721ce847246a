"""No server outlives the tests that started it, though they end suddenly.

`atexit` stops servers, but not when a process of pytest is killed. So a small process beside it
holds the end of a pipe: when the other end is gone, it kills what was told to it and not yet ended.
(The kernel's parent-death signal would come with the end of the *thread* that started a server.)
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from typing import IO

_line: int | None = None


def started(pid: int, folder: object) -> None:
    """This server is ours, and so is its folder."""
    _tell(f"+ {pid} {folder}\n")


def ended(pid: int) -> None:
    """It is no more; the number may be somebody else's soon."""
    _tell(f"- {pid}\n")


def _tell(line: str) -> None:
    global _line
    if _line is None:
        reading, _line = os.pipe()
        watching = subprocess.Popen(  # noqa: S603  # ourselves
            [sys.executable, __file__], stdin=reading, start_new_session=True
        )
        watching.returncode = 0  # nobody waits for it: it ends behind us
        os.close(reading)
    os.write(_line, line.encode())


def watch(lines: IO[str]) -> None:
    """Until the tests end; then make an end of what they left."""
    left: dict[int, str] = {}
    for line in lines:
        sign, pid, *folder = line.split(maxsplit=2)
        if sign == "+":
            left[int(pid)] = folder[0].rstrip("\n")
        else:
            left.pop(int(pid), None)
    for pid, place in left.items():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    watch(sys.stdin)
