"""Children that do not outlive their parent."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with(parent: int, with_signal: signal.Signals = signal.SIGKILL) -> None:
    """Have the kernel kill this process when the thread that started it ends. Linux only; elsewhere
    the end of a pipe must do."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(with_signal))
    if os.getppid() != parent:  # it died before we asked
        os._exit(1)
