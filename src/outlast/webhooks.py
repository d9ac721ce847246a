"""Webhooks: what happens to tasks, told to other services, signed as Standard Webhooks are.

A subscription is a record; a delivery is a task, so it is retried, limited by host, kept and
redriven as every other. `deliver` is the only way out: it goes to addresses of the public internet
(and to networks that `OUTLAST_WEBHOOK_NETWORKS` allows), to the very address that was checked, and
follows no redirect.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import logging
import os
import re
import secrets
import socket
from collections.abc import Mapping, Sequence
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import TYPE_CHECKING, Any, Final, Literal, get_args
from urllib.parse import SplitResult, urlsplit

import msgspec
from msgspec import Struct

from outlast.core.errors import BadInput, NotFound, Permanent, Transient
from outlast.core.ids import new_id
from outlast.core.limits import MAX_KEY, Limit, Trip
from outlast.core.model import Event, EventQuery, Put, Term
from outlast.core.states import Ms
from outlast.engine import Engine
from outlast.filters import parse_filter
from outlast.logs import no_queries
from outlast.views import event_view, iso, to_json

if TYPE_CHECKING:
    import httpx2

Happening = Literal["task.completed", "task.dead", "task.cancelled", "task.overdue"]
HAPPENINGS: Final[tuple[Happening, ...]] = get_args(Happening)
KINDS: Final = ("done", "overdue")

DELIVERY: Final = "outlast.webhook"
POSITION: Final = "webhooks"
"""Under this key is kept how far the log has been read."""
SCHEDULE: Final = "5s 5m 30m 2h 5h 10h 14h 20h 24h"
ATTEMPTS: Final = 10
TIMEOUT_S: Final = 20.0
MOST_READ: Final = 65_536
SECRET: Final = "whsec_"  # noqa: S105  # how a secret begins
MAX_URL: Final = 2_000
ROTATED: Final = 2
"""Secrets that sign side by side, so that a receiver can change over."""

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
_NAT64: Final = IPv6Network("64:ff9b::/96")
_PROTOCOLS: Final = IPv4Network("192.0.0.0/24")
_UNICAST: Final = IPv6Network("2000::/3")
_NO_HOST: Final = re.compile(r"[^\w.-]")
_ABOUT: Final = ("type", "queue", "session_id", "workflow_id")


class Webhook(Struct, frozen=True, kw_only=True):
    """A subscription."""

    id: str
    url: str
    events: tuple[Happening, ...] = HAPPENINGS
    filter: str = ""
    secrets: tuple[str, ...]
    """The first is the newest; every delivery is signed with all."""
    created_at: Ms
    disabled: str | None = None
    """Why nothing is sent there any more."""

    @property
    def host(self) -> str:
        return urlsplit(self.url).hostname or ""


# Subscriptions -----------------------------------------------------------------------------------


async def create(
    engine: Engine, url: str, *, events: Sequence[str] = HAPPENINGS, filter: str = ""
) -> Webhook:
    """Subscribe; the secret is in the answer and in no other."""
    await _check_numbers(_check_url(url))
    for name in events:
        if name not in HAPPENINGS:
            raise BadInput(f"There is no event {name!r}: {', '.join(HAPPENINGS)}.", field="events")
    _terms(filter)
    webhook = Webhook(
        id=new_id(),
        url=url,
        events=tuple(msgspec.convert(list(events), list[Happening])),
        filter=filter,
        secrets=(_new_secret(),),
        created_at=await engine.now(),
    )
    # The first one begins here, and not where a worker comes to look.
    end = (await engine.events(EventQuery(after="$"))).next
    await engine.put([Put(kind="position", key=POSITION, value=msgspec.json.encode(end), expect=0)])
    await _keep(engine, webhook, expect=0)
    return webhook


async def webhooks(engine: Engine) -> list[Webhook]:
    found = [_read(record.value) for record in await engine.get("webhook")]
    return sorted(found, key=lambda webhook: webhook.created_at)


async def find(engine: Engine, id: str) -> Webhook:
    found = await engine.get("webhook", [id])
    if not found:
        raise NotFound(f"There is no webhook {id!r}.")
    return _read(found[0].value)


async def delete(engine: Engine, id: str) -> None:
    await find(engine, id)
    await engine.put([Put(kind="webhook", key=id, value=None)])


async def rotate(engine: Engine, id: str) -> Webhook:
    """A new secret; the one before it signs, too, until the next time."""
    webhook = await find(engine, id)
    kept = (_new_secret(), *webhook.secrets)[:ROTATED]
    return await _change(engine, id, secrets=kept, disabled=webhook.disabled)


async def enable(engine: Engine, id: str, disabled: str | None = None) -> Webhook:
    """Send there again; or no longer, with the reason."""
    return await _change(engine, id, disabled=disabled)


async def _change(engine: Engine, id: str, **changes: Any) -> Webhook:
    while True:
        found = await engine.get("webhook", [id])
        if not found:
            raise NotFound(f"There is no webhook {id!r}.")
        webhook = msgspec.structs.replace(_read(found[0].value), **changes)
        if await _keep(engine, webhook, expect=found[0].version):
            return webhook


async def _keep(engine: Engine, webhook: Webhook, expect: int) -> bool:
    value = msgspec.json.encode(webhook)
    [kept] = await engine.put([Put(kind="webhook", key=webhook.id, value=value, expect=expect)])
    return kept is not None


def _read(data: bytes) -> Webhook:
    return msgspec.json.decode(data, type=Webhook)


def _new_secret() -> str:
    return SECRET + base64.b64encode(secrets.token_bytes(32)).decode()


def _check_url(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        fine = bool(parts.hostname) and url.isprintable() and " " not in url
        fine = fine and (parts.port is None or parts.port > 0)
    except ValueError:
        fine = False
        parts = SplitResult("", "", "", "", "")
    if not fine or parts.scheme not in ("https", "http") or len(url) > MAX_URL:
        raise BadInput("url: give an https address, as in https://example.com/hook.", field="url")
    if parts.username or parts.password:
        raise BadInput("url: no user and password in it; deliveries are signed.", field="url")
    return parts


async def _check_numbers(parts: SplitResult) -> None:
    """An address in numbers is refused at once, however they are written; what a name stands for is
    looked at when something is sent there."""
    try:
        socket.getaddrinfo(parts.hostname, None, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return
    try:
        await resolve(parts)
    except Permanent as error:
        raise BadInput(f"url: {error}", field="url") from error


# What is told ------------------------------------------------------------------------------------


def happening(event: Event) -> Happening | None:
    """What an event of the log is called outside."""
    if event.kind == "overdue":
        return "task.overdue"
    status = msgspec.json.decode(event.data).get("status")
    return next((name for name in HAPPENINGS if name == f"task.{status}"), None)


def wants(webhook: Webhook, event: Event) -> bool:
    """Is this event in the subscription?"""
    if webhook.disabled is not None or happening(event) not in webhook.events:
        return False
    if event.at < webhook.created_at:  # the reader may lag behind, or have had nothing to do
        return False
    return all(
        (getattr(event, term.field) in term.values) is not term.negated
        for term in _terms(webhook.filter)
    )


def body_of(event: Event) -> bytes:
    """What is sent: about the task, never what is in it."""
    view = event_view(event)
    data = {
        "task_id": event.task_id,
        "task_type": event.type,
        "queue": event.queue,
        "session_id": event.session_id,
        "workflow_id": event.workflow_id,
        "attempt": event.attempt,
        "status": view.get("status"),
        "reason": view.get("reason"),
    }
    return to_json({"type": happening(event), "timestamp": iso(event.at), "data": data})


def _terms(filter: str) -> tuple[Term, ...]:
    terms = parse_filter(filter, 0)
    for term in terms:
        if term.field not in _ABOUT:
            raise BadInput(
                "filter: a webhook is chosen by type, queue, session and workflow, as in"
                " 'type:report -queue:bulk'.",
                field="filter",
            )
    return terms


def signatures(webhook: Webhook, message_id: str, at_s: int, body: bytes) -> str:
    """Standard Webhooks, v1: one signature for each secret."""
    signed = b"%b.%d.%b" % (message_id.encode(), at_s, body)
    marks = (
        hmac.digest(base64.b64decode(secret.removeprefix(SECRET)), signed, hashlib.sha256)
        for secret in webhook.secrets
    )
    return " ".join(f"v1,{base64.b64encode(mark).decode()}" for mark in marks)


# The way out -------------------------------------------------------------------------------------


def gate_of(payload: Mapping[str, object]) -> list[Limit]:
    """A slow or broken host holds up its own deliveries only. Addresses have colons, which part a
    key, and what is no host at all must not keep the others from being told either."""
    key = f"webhook:{_NO_HOST.sub('-', str(payload['host']))}"
    return [Limit(key[:MAX_KEY], slots=4, trip=Trip(volume=5, open="30s"))]


async def deliver(engine: Engine, webhook_id: str, message_id: str, body: bytes) -> dict[str, int]:
    """One attempt at one delivery; raises what the retry policy has to know."""
    webhook = await find(engine, webhook_id)
    if webhook.disabled is not None:
        raise Permanent(f"The webhook is disabled: {webhook.disabled}")
    at_s = await engine.now() // 1_000
    headers = {
        "content-type": "application/json",
        "user-agent": "outlast",
        "webhook-id": message_id,
        "webhook-timestamp": str(at_s),
        "webhook-signature": signatures(webhook, message_id, at_s, body),
    }
    status, retry_after = await _post(webhook.url, headers, body)
    if 200 <= status < 300:
        return {"status": status}
    if status == 410:
        await enable(engine, webhook_id, "the receiver answered 410 Gone")
        raise Permanent("The receiver answered 410: the webhook is disabled.")
    raise Transient(f"The receiver answered {status}.", status=status, after=retry_after)


async def _post(url: str, headers: Mapping[str, str], body: bytes) -> tuple[int, str | None]:
    import httpx2

    logging.getLogger("httpx2").addFilter(no_queries)  # it logs every address
    parts = _check_url(url)
    address = await resolve(parts)
    host = parts.hostname or ""
    default = 443 if parts.scheme == "https" else 80
    port = parts.port or default
    pinned = f"[{address}]" if address.version == 6 else str(address)
    named = f"[{host}]" if ":" in host else host
    target = httpx2.URL(url).copy_with(host=pinned, port=port)
    told = {**headers, "host": named if port == default else f"{named}:{port}"}
    try:
        async with (
            asyncio.timeout(TIMEOUT_S),
            httpx2.AsyncClient(trust_env=False, follow_redirects=False, timeout=TIMEOUT_S) as http,
            http.stream("POST", target, headers=told, content=body,
                        extensions={"sni_hostname": host}) as reply,
        ):  # fmt: skip
            await _discard(reply)
            after = reply.headers.get("retry-after", "")
            return reply.status_code, f"{after}s" if after.isdigit() and len(after) < 6 else None
    except TimeoutError as error:
        raise Transient(f"{host} did not answer within {TIMEOUT_S:.0f} s.") from error
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
        raise Transient(f"{host} cannot be reached: {type(error).__name__}.") from error


async def _discard(reply: httpx2.Response) -> None:
    """What a receiver says beyond its status is nobody's business; a little of it is read."""
    read = 0
    async for chunk in reply.aiter_raw():
        read += len(chunk)
        if read > MOST_READ:
            return


async def resolve(parts: SplitResult) -> Address:
    """The address to connect to. All that the name has must be allowed: one is chosen by chance."""
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise Transient(f"There is no address for {host!r}.") from error
    addresses = [ip_address(str(one[4][0]).partition("%")[0]) for one in found]
    allowed = allowed_networks()
    for address in addresses:
        known = any(address in network for network in allowed)
        if not known and (parts.scheme != "https" or not _is_public(address)):
            raise Permanent(
                f"{host!r} is not sent to: only https addresses of the public internet are, and"
                " what is in OUTLAST_WEBHOOK_NETWORKS.",
                details={"host": host},
            )
    return addresses[0]


def _is_public(address: Address) -> bool:
    if isinstance(address, IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if address in _NAT64:
            inner = IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return _is_public(inner)
        if address not in _UNICAST:  # `::127.0.0.1` and others that Python takes for global
            return False
    elif address in _PROTOCOLS:  # most of it is global for Python before 3.13
        return False
    return address.is_global and not address.is_multicast


def allowed_networks(environ: Mapping[str, str] = os.environ) -> list[Network]:
    """Networks of one's own that webhooks may reach, as in `10.1.0.0/16,127.0.0.1`."""
    text = environ.get("OUTLAST_WEBHOOK_NETWORKS", "")
    try:
        return [ip_network(part.strip()) for part in text.split(",") if part.strip()]
    except ValueError as error:
        raise BadInput(
            f"OUTLAST_WEBHOOK_NETWORKS: {error}; write networks, as in 10.1.0.0/16,127.0.0.1.",
            field="OUTLAST_WEBHOOK_NETWORKS",
        ) from error
