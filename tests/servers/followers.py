"""Servers that follow another one and take no writes: a standby, a replica, a secondary."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import redis
from pymongo import MongoClient
from tests.servers import orphans


@contextmanager
def standby(servers: ModuleType, primary: Any) -> Iterator[str]:
    """The URL of a PostgreSQL that streams from the primary."""

    class Standby(servers.Server):  # type: ignore[misc, name-defined]
        def _call(self, program: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
            if program == "initdb":
                program = "pg_basebackup"
                arguments = ("-d", primary.url, "-D", self._data, "-R", "--no-sync", "-c", "fast")
            done: subprocess.CompletedProcess[bytes] = super()._call(program, *arguments)
            return done

    server = Standby()
    try:
        server.run()
        yield server.url
    finally:
        server.stop()


@contextmanager
def replica(servers: ModuleType, primary: Any) -> Iterator[str]:
    """The URL of a Valkey that has copied the primary and follows it."""
    server = servers.Server(settings=("--replicaof", "127.0.0.1", str(primary.port)))
    try:
        server.run()
        with redis.Redis(port=server.port) as client:
            _until(lambda: client.info("replication")["master_link_status"] == "up")  # type: ignore[index]
        yield server.url
    finally:
        server.stop()


@contextmanager
def secondary(servers: ModuleType, primary: Any) -> Iterator[str]:
    """The URL of a mongod that has joined the primary's set, to be asked itself."""
    folder = tempfile.mkdtemp(prefix="outlast-mongod-")
    port = servers._free_port()
    process = subprocess.Popen(  # noqa: S603
        [servers._binary(), "--port", str(port), "--bind_ip", "127.0.0.1", "--dbpath", folder,
         "--replSet", "rs0", "--wiredTigerCacheSizeGB", "0.25", "--logpath", f"{folder}/log"],
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    orphans.started(process.pid, folder)
    url = f"mongodb://127.0.0.1:{port}/outlast?directConnection=true"
    try:
        with MongoClient[dict[str, Any]](url) as here:
            here.admin.command("hello")
            _join(primary, port)
            _until(lambda: here.admin.command("hello").get("secondary"))
        yield url
    finally:
        process.kill()
        process.wait()
        orphans.ended(process.pid)
        shutil.rmtree(folder, ignore_errors=True)


def _join(primary: Any, port: int) -> None:
    with MongoClient[dict[str, Any]](primary.url) as client:
        config = client.admin.command("replSetGetConfig")["config"]
        config["version"] += 1
        follower = {"_id": 1, "host": f"127.0.0.1:{port}", "priority": 0, "votes": 0}
        config["members"].append(follower)
        client.admin.command("replSetReconfig", config)


def _until(holds: Any) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)
