"""PostgreSQL behind PgBouncer in transaction mode; hints come by a direct connection."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

from tests.servers import orphans

PROGRAM: Final = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
"""None: it is not installed."""

_SPEC = spec_from_file_location("tests_servers_postgresql", Path(__file__).parent / "postgresql.py")
assert _SPEC is not None and _SPEC.loader is not None
_POSTGRESQL = module_from_spec(_SPEC)
_SPEC.loader.exec_module(_POSTGRESQL)

_SETTINGS: Final = """
[databases]
postgres = host=127.0.0.1 port={server} dbname=postgres user=outlast
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 8
max_client_conn = 500
ignore_startup_parameters = extra_float_digits
"""


class Bouncer:
    """One PgBouncer before a server."""

    def __init__(self, server_port: int) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="outlast-pgbouncer-"))
        self.port = _free_port()
        settings = self._folder / "pgbouncer.ini"
        settings.write_text(_SETTINGS.format(server=server_port, port=self.port))
        user = None
        if os.geteuid() == 0:  # it refuses to run as root
            user = "nobody"
            shutil.chown(self._folder, user)
        self._process = subprocess.Popen(  # noqa: S603
            [str(PROGRAM), "-q", str(settings)], user=user, cwd=self._folder
        )
        orphans.started(self._process.pid, self._folder)
        deadline = time.monotonic() + 10
        while not _answers(self.port):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("PgBouncer did not come up")
            time.sleep(0.05)

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait()
        orphans.ended(self._process.pid)
        shutil.rmtree(self._folder, ignore_errors=True)


def start() -> str:
    """The address of a server that lives as long as this process."""
    direct: Any = _POSTGRESQL.start()
    bouncer = Bouncer(urlsplit(direct).port or 5432)
    atexit.register(bouncer.stop)
    # Releases before 1.21 know no prepared statements.
    return (
        f"postgresql://outlast@127.0.0.1:{bouncer.port}/postgres"
        f"?statement_cache_size=0&listen_url={quote(direct, safe='')}"
    )


def namespace(address: str, name: str) -> str:
    return f"{address}&namespace={name}"


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
