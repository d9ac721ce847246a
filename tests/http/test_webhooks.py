"""Webhooks: signed so that others can verify, retried as tasks, and sent only where they may."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any

import msgspec
import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from outlast import webhooks
from outlast.core.errors import BadInput, Permanent, Transient
from outlast.core.model import Event, EventQuery, Put, TaskQuery
from outlast.testing import testing
from outlast.worker import dispatch

from .site import Site, make_app, serving, until


@dataclass
class Receiver:
    """A server that keeps what it is sent, and answers as it was told to."""

    port: int = 0
    answers: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    silent: bool = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            pairs = (line.split(": ", 1) for line in head[1:] if line)
            headers = {name.lower(): value for name, value in pairs}
            body = await reader.readexactly(int(headers["content-length"]))
            self.got.append((headers, body))
            if self.silent:
                await reader.read()
                return
            status, more = self.answers.pop(0) if self.answers else (204, {})
            lines = [f"HTTP/1.1 {status} x", "content-length: 0", "connection: close"]
            lines += [f"{name}: {value}" for name, value in more.items()]
            writer.write("\r\n".join([*lines, "", ""]).encode())
            await writer.drain()
        finally:
            writer.close()


@pytest.fixture
async def receiver(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Receiver]:
    monkeypatch.setenv("OUTLAST_WEBHOOK_NETWORKS", "127.0.0.1/32")
    made = Receiver()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    async with server:
        yield made


@asynccontextmanager
async def subscribed(
    receiver: Receiver, **options: Any
) -> AsyncIterator[tuple[Site, dict[str, Any]]]:
    app, _ = make_app()
    async with serving(app, working=True) as site:
        reply = await site.post("/webhooks", {"url": receiver.url, **options})
        assert reply.status_code == 201, reply.text
        hook = reply.json()

        async def reads() -> bool:  # the position is stored: from here on nothing is missed
            return bool(await app.engine.get("position", ["webhooks"]))

        await until(reads)
        yield site, hook


async def deliveries(site: Site, hook: dict[str, Any]) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = (await site.get(f"/webhooks/{hook['id']}/deliveries")).json()[
        "items"
    ]
    return items


async def test_an_independent_verifier_accepts_what_is_sent(receiver: Receiver) -> None:
    async with subscribed(receiver) as (site, hook):
        task = await site.enqueue("add", {"a": 20_000_000, "b": 22}, session_id="s")
        await until(lambda: bool(receiver.got))
        headers, body = receiver.got[0]
        told = Webhook(hook["secret"]).verify(body, headers)
        assert told["type"] == "task.completed"
        assert told["data"]["task_id"] == task["id"]
        assert told["data"]["session_id"] == "s"
        assert b"20000022" not in body.replace(task["id"].encode(), b""), (
            "nothing of payload or result"
        )
        with pytest.raises(WebhookVerificationError):
            Webhook(hook["secret"]).verify(body + b" ", headers)
        listed = (await site.get("/webhooks")).text
        assert hook["secret"] not in listed

        async def delivered() -> bool:
            return [d["status"] for d in await deliveries(site, hook)] == ["completed"]

        await until(delivered)


async def test_both_secrets_verify_while_a_receiver_changes_over(receiver: Receiver) -> None:
    async with subscribed(receiver) as (site, hook):
        newer = (await site.post(f"/webhooks/{hook['id']}/rotate")).json()
        await site.enqueue("add", {"a": 1})
        await until(lambda: bool(receiver.got))
        headers, body = receiver.got[0]
        for secret in (hook["secret"], newer["secret"]):
            Webhook(secret).verify(body, headers)


async def test_only_what_is_subscribed_to_is_sent(receiver: Receiver) -> None:
    options = {"events": ["task.dead"], "filter": "type:doomed -queue:quiet"}
    async with subscribed(receiver, **options) as (site, _):
        await site.enqueue("add", {"a": 1})
        await site.enqueue("doomed", queue="quiet")
        task = await site.enqueue("doomed")
        await until(lambda: bool(receiver.got))
        assert [json.loads(body)["data"]["task_id"] for _, body in receiver.got] == [task["id"]]


async def test_the_same_message_comes_again_under_its_id(receiver: Receiver) -> None:
    receiver.answers = [(500, {}), (429, {"retry-after": "7"})]
    app, _ = make_app()
    async with testing(app) as t:
        hook = await webhooks.create(app.engine, receiver.url)
        await app.submit("add", {"a": 1})
        await t.run()
        [done] = (await app.engine.events(EventQuery(kinds=("done",)))).items
        payload = {"webhook": hook.id, "host": hook.host, "message": "msg_1",
                   "body": webhooks.body_of(done).decode()}  # fmt: skip
        handle = await app.submit(webhooks.DELIVERY, payload)
        await t.run()
        first = await t.task(handle)
        assert first.status == "retrying"
        assert 4_900 <= first.run_at - first.updated_at <= 5_600
        await t.advance("6s")
        await t.run()
        assert await t.status(handle) == "throttled", "429: the host is left alone for a while"
        assert len(receiver.got) == 2
        await t.advance("8s")
        await t.run()
        assert await t.status(handle) == "completed"
    ids = {headers["webhook-id"] for headers, _ in receiver.got}
    assert (len(receiver.got), len(ids)) == (3, 1)


async def test_gone_disables_until_somebody_enables(receiver: Receiver) -> None:
    receiver.answers = [(410, {})]
    async with subscribed(receiver) as (site, hook):
        await site.enqueue("add", {"a": 1})

        async def disabled() -> bool:
            [listed] = (await site.get("/webhooks")).json()["items"]
            return listed["disabled"] is not None

        await until(disabled)

        async def dead() -> bool:
            return [d["status"] for d in await deliveries(site, hook)] == ["dead"]

        await until(dead)
        await site.post(f"/webhooks/{hook['id']}/enable")
        [delivery] = await deliveries(site, hook)
        path = f"/webhooks/{hook['id']}/deliveries/{delivery['id']}/replay"
        assert (await site.post(path)).status_code == 202
        await until(lambda: len(receiver.got) == 2)
        assert receiver.got[0][0]["webhook-id"] == receiver.got[1][0]["webhook-id"]


async def test_a_redirect_is_a_failure_and_is_not_followed(receiver: Receiver) -> None:
    receiver.answers = [(302, {"location": "http://169.254.169.254/latest/meta-data"})]
    hook = await _hook(receiver.url)
    async with make_app()[0] as app:
        await app.engine.put([hook])
        with pytest.raises(Transient, match="302"):
            await webhooks.deliver(app.engine, hook.key, "m", b"{}")
    assert len(receiver.got) == 1


async def test_who_does_not_answer_is_given_up_for_now(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "TIMEOUT_S", 0.2)
    receiver.silent = True
    hook = await _hook(receiver.url)
    async with make_app()[0] as app:
        await app.engine.put([hook])
        with pytest.raises(Transient, match="did not answer within"):
            await webhooks.deliver(app.engine, hook.key, "m", b"{}")


PRIVATE = ["127.0.0.1", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "0.0.0.0",  # noqa: S104
           "100.64.0.1", "224.0.0.1", "255.255.255.255", "::1", "::", "fe80::1", "fd00::1",
           "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::",
           "::127.0.0.1", "::ffff:0:127.0.0.1", "64:ff9b:1::7f00:1", "fec0::1",
           "192.0.0.8"]  # fmt: skip


@pytest.mark.parametrize("address", PRIVATE)
async def test_no_address_of_ours_is_reached(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OUTLAST_WEBHOOK_NETWORKS", raising=False)
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", _names([address]))
    with pytest.raises(Permanent, match="public internet"):
        await webhooks._post("https://receiver.example/hook", {}, b"{}")


@pytest.mark.parametrize("host", ["0x7f.1", "2130706433", "127.1", "localhost", "[::1]", "0"])
async def test_other_spellings_of_loopback(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OUTLAST_WEBHOOK_NETWORKS", raising=False)
    with pytest.raises(Permanent, match="public internet"):
        await webhooks._post(f"https://{host}/hook", {}, b"{}")


async def test_one_private_address_among_public_ones_is_enough_to_refuse(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        asyncio.get_running_loop(), "getaddrinfo", _names(["93.184.216.34", "127.0.0.1"])
    )
    with pytest.raises(Permanent):
        await webhooks._post("https://receiver.example/hook", {}, b"{}")


async def test_a_name_that_changes_its_mind_is_connected_where_it_was_checked(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first lookup is the only one: the second would lead to a port that nobody has."""
    lookups = iter([["127.0.0.1"]])

    def names(*_: Any, **__: Any) -> Any:
        return _names(next(lookups))()

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", names)
    status, _ = await webhooks._post(f"http://receiver.example:{receiver.port}/x", _LENGTH, b"{}")
    assert status == 204
    assert receiver.got[0][0]["host"] == f"receiver.example:{receiver.port}"


async def test_plain_http_goes_to_allowed_networks_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", _names(["93.184.216.34"]))
    with pytest.raises(Permanent):
        await webhooks._post("http://receiver.example/hook", {}, b"{}")


@pytest.mark.parametrize(
    "url", ["ftp://x/", "https://", "javascript:1", "https://a:b@x/", "https://x:0/", "http://[::1",
            "https://x:99999/", "x" * 2_100, "https://a b/", "https://x/\r\nY: 1", "https://x/\tz"],
)  # fmt: skip
async def test_what_is_no_address_is_refused(site: Site, url: str) -> None:
    reply = await site.post("/webhooks", {"url": url})
    assert (reply.status_code, reply.json()["field"]) == (422, "url")


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "2130706433", "0x7f000001", "[::1]", "[::ffff:10.0.0.1]", "10.1", "0"]
)
async def test_numbers_of_private_addresses_cannot_be_subscribed(
    site: Site, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.delenv("OUTLAST_WEBHOOK_NETWORKS", raising=False)
    for scheme in ("https", "http"):
        reply = await site.post("/webhooks", {"url": f"{scheme}://{host}:8443/hook"})
        assert (reply.status_code, reply.json()["field"]) == (422, "url")
        assert "OUTLAST_WEBHOOK_NETWORKS" in reply.json()["detail"]
    assert (await site.get("/webhooks")).json()["items"] == []


@pytest.mark.parametrize(
    "more", [{"events": ["task.born"]}, {"filter": "payload.a:1"}, {"filter": "colour:red"}]
)
async def test_what_cannot_be_subscribed_to_is_refused(site: Site, more: dict[str, Any]) -> None:
    reply = await site.post("/webhooks", {"url": "https://example.com/", **more})
    assert reply.status_code == 422


def test_networks_are_read_or_refused() -> None:
    read = webhooks.allowed_networks({"OUTLAST_WEBHOOK_NETWORKS": "10.1.0.0/16, 127.0.0.1"})
    assert ip_address("10.1.2.3") in read[0]
    with pytest.raises(BadInput, match="OUTLAST_WEBHOOK_NETWORKS"):
        webhooks.allowed_networks({"OUTLAST_WEBHOOK_NETWORKS": "here"})


async def test_what_happens_before_a_worker_looks_is_sent_and_what_was_before_is_not(
    site: Site,
) -> None:
    """A subscription begins when it is made: not when the log is read next, and not where it was
    read last, which may be long ago."""

    async def end() -> str:
        id: str = (await site.enqueue("add", {"a": 1}))["id"]
        await site.post(f"/tasks/{id}/cancel")
        return id

    async def subscribe() -> dict[str, Any]:
        told = {"url": "https://example.org/hook", "events": ["task.cancelled"]}
        hook: dict[str, Any] = (await site.post("/webhooks", told)).json()
        return hook

    async def sent(hook: dict[str, Any]) -> list[str]:
        await dispatch._forward(site.app)
        bodies = [json.loads(one["payload"]["body"]) for one in await deliveries(site, hook)]
        return [body["data"]["task_id"] for body in bodies]

    await end()
    first = await subscribe()
    ended = await end()
    assert await sent(first) == [ended]
    await site.http.delete(f"/api/v1/webhooks/{first['id']}")
    await end()
    site.app.engine.skew_ms += 1
    second = await subscribe()
    ended = await end()
    assert await sent(second) == [ended]


@pytest.mark.parametrize(
    "host", ["[2606:4700::1111]", "[fe80::1%25lo]", f"{'a' * 300}.org", "*.org", "{a}.org"]
)
async def test_no_host_keeps_others_from_being_told(
    site: Site, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setenv("OUTLAST_WEBHOOK_NETWORKS", "fe80::/10")
    hooks = []
    for url in (f"https://{host}/hook", "https://example.org/hook"):
        reply = await site.post("/webhooks", {"url": url})
        assert reply.status_code == 201, reply.text
        hooks.append(reply.json())
    await site.post(f"/tasks/{(await site.enqueue('add', {'a': 1}))['id']}/cancel")
    await dispatch._forward(site.app)
    assert [len(await deliveries(site, hook)) for hook in hooks] == [1, 1]


async def test_a_dispatcher_that_died_on_the_way_sends_nothing_twice(receiver: Receiver) -> None:
    app, _ = make_app()
    async with testing(app) as t:
        await webhooks.create(app.engine, receiver.url)
        await dispatch._forward(app)
        for n in range(5):
            await app.submit("add", {"a": n})
        await t.run()
        [before] = await app.engine.get("position", ["webhooks"])
        await dispatch._forward(app)
        await app.engine.put([Put(kind="position", key="webhooks", value=before.value)])
        await dispatch._forward(app)
        made = await app.engine.tasks(TaskQuery.of(type=webhooks.DELIVERY))
        assert len(made.items) == 5
        assert await dispatch._hold(app, "one")
        assert not await dispatch._hold(app, "two")
        assert await dispatch._hold(app, "one")
        app.engine.skew_ms += dispatch.HOLD_MS + 1
        assert await dispatch._hold(app, "two")


_LENGTH = {"content-length": "2"}


async def _hook(url: str) -> Any:
    hook = webhooks.Webhook(id="w1", url=url, secrets=(webhooks._new_secret(),), created_at=0)
    return Put(kind="webhook", key="w1", value=msgspec.json.encode(hook))


def _names(addresses: list[str]) -> Callable[..., Any]:
    async def getaddrinfo(*_: Any, **__: Any) -> list[Any]:
        return [
            (
                socket.AF_INET6 if ":" in address else socket.AF_INET,
                socket.SOCK_STREAM,
                6,
                "",
                (address, 443),
            )
            for address in addresses
        ]

    return getaddrinfo


def test_an_event_that_is_no_end_is_none_of_ours() -> None:
    event = Event(cursor="1", kind="done", at=0, data=b'{"status":"resolved"}', task_id="t")
    assert webhooks.happening(event) is None
