"""The servers of the tests do not outlive them."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parent.parent
STARTS = """
from tests.servers import redis
server = redis.Server()
server.run()
stopped = redis.Server()
stopped.run()
stopped.stop()
print(server.pid, server._folder, flush=True)
input()
"""


def test_a_server_ends_with_the_tests_also_when_these_are_killed() -> None:
    with subprocess.Popen(  # noqa: S603  # ourselves
        [sys.executable, "-c", STARTS],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as tests:  # fmt: skip
        assert tests.stdout is not None
        pid, folder = tests.stdout.readline().split(maxsplit=1)
        assert not _gone(pid)
        tests.kill()
    _until(lambda: _gone(pid) and not Path(folder.strip()).exists())


def _gone(pid: str) -> bool:
    """Dead, or a zombie that nobody has buried yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)
