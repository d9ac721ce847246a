"""A server that wants TLS and a user: the least rights suffice, and a refusal says what to do."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient

from outlast.core.errors import EngineDown
from outlast.core.ids import new_fence, new_id
from outlast.core.model import NewTask, Outcome, TaskQuery, Turn, Want, WorkerInfo
from outlast.engine import connect

from .conftest import servers

CERTIFICATE = (
    "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 "
    "-addext subjectAltName=IP:127.0.0.1 -keyout key.pem -out cert.pem"
)


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server with TLS and three users: root, one with the least rights on the
    database `jobs`, and one without any."""
    folder: Path = tmp_path_factory.mktemp("secure")
    subprocess.run(CERTIFICATE.split(), cwd=folder, check=True, capture_output=True)  # noqa: S603
    both, key = folder / "both.pem", folder / "members.key"
    both.write_text((folder / "key.pem").read_text() + (folder / "cert.pem").read_text())
    key.write_text("a secret that only the members share")
    key.chmod(0o600)
    server = servers.Server(
        settings=(
            "--keyFile", str(key), "--tlsMode", "requireTLS", "--tlsCertificateKeyFile", str(both),
        ),
        options=f"&tls=true&tlsCAFile={folder / 'cert.pem'}",
    )  # fmt: skip
    try:
        server.run()
        with server.client() as client:
            _add_user(client.admin, "root", "r", "root")
        url = url_of(server.url, "root:r").replace("authSource=jobs", "authSource=admin")
        with MongoClient[dict[str, Any]](url) as client:
            _add_user(client.jobs, "worker", "p%/?", "readWrite")
            _add_user(client.jobs, "guest", "g")
        yield server.url
    finally:
        server.stop()


def _add_user(db: Any, name: str, password: str, *roles: str) -> None:
    db.command("createUser", name, pwd=password, roles=list(roles))


def url_of(secure: str, user: str, database: str = "jobs") -> str:
    return secure.replace("mongodb://", f"mongodb://{user}@").replace(
        "/?", f"/{database}?authSource=jobs&"
    )


async def test_the_least_rights_suffice(secure: str) -> None:
    engine = connect(url_of(secure, "worker:p%25%2F%3F"))
    await engine.open()
    task = NewTask(id=new_id(), type="work")
    info = WorkerInfo(host="here", pid=1)
    wants = (Want("default", "primary", 9),)
    async with engine.watch({"queue:default"}) as watch:
        await engine.enqueue([task])
        assert await watch.wait(30)
    turn = Turn(token=new_fence(), worker="w", room=9, wants=wants, info=info)
    [lease] = (await engine.exchange(turn)).leases
    ended = Outcome(id=lease.id, fence=lease.fence, state="completed")
    await engine.exchange(Turn(token=new_fence(), worker="w", outcomes=(ended,)))
    await engine.sweep()
    assert [t.status for t in (await engine.tasks(TaskQuery())).items] == ["completed"]
    await engine.close()


async def test_they_suffice_to_end_the_transaction_of_a_killed_process(secure: str) -> None:
    url = url_of(secure, "worker:p%25%2F%3F")
    engine = connect(url)
    await engine.open()
    script = Path(__file__).parent / "stuck.py"
    process = await asyncio.create_subprocess_exec(sys.executable, str(script), url)
    assert await process.wait() < 0
    since = time.monotonic()
    await engine.enqueue([NewTask(id=new_id(), type="work")])
    assert time.monotonic() - since < 30
    await engine.close()


@pytest.mark.parametrize("user", ["worker:wrong", "nobody:wrong"])
async def test_a_wrong_password_is_named_and_not_shown(secure: str, user: str) -> None:
    with pytest.raises(EngineDown, match="refused the user or the password") as refused:
        await connect(url_of(secure, user)).open()
    assert "wrong" not in str(refused.value)


async def test_missing_rights_are_named(secure: str) -> None:
    with pytest.raises(EngineDown, match="needs the role readWrite on 'jobs'"):
        await connect(url_of(secure, "guest:g")).open()
    with pytest.raises(EngineDown, match="needs the role readWrite on 'others'"):
        await connect(url_of(secure, "worker:p%25%2F%3F", "others")).open()


async def test_no_user_at_all_is_a_missing_right(secure: str) -> None:
    with pytest.raises(EngineDown, match="needs the role readWrite on 'jobs'"):
        await connect(secure.replace("/?", "/jobs?")).open()


@pytest.mark.usefixtures("unreachable")
async def test_a_client_without_tls_is_told(secure: str) -> None:
    plain = secure.partition("&tls")[0] + "&serverSelectionTimeoutMS=500"
    with pytest.raises(EngineDown, match="tls=true"):
        await connect(plain).open()
