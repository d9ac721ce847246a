"""What callers may say about the tasks they ask for, and under which key they repeat it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from fastapi import Request
from msgspec import Raw

from outlast.access import Principal
from outlast.app import Outlast
from outlast.core.codec import loads
from outlast.core.errors import BadInput, Mismatch
from outlast.core.ids import new_id
from outlast.core.model import Put
from outlast.engine import Engine
from outlast.http.door import principal_of
from outlast.http.problems import Refused
from outlast.options import IDEMPOTENT_MS, name_of

KEYS: Final = "workflow_key"
"""Records of what was asked for under a key in one request that is more than one task."""
SESSION_OPTIONS: Final = ("delay", "run_at", "unique_key", "unique_for", "tags")
"""What an end user may say about a task."""


def options_of(fields: Mapping[str, Raw]) -> dict[str, Any]:
    """What is left of a body; `app.prepare` knows the options. None is as good as absent."""
    options = {name: loads(bytes(value), name) for name, value in fields.items()}
    if "within" in options:
        raise BadInput("within: a transaction cannot be joined over HTTP.", field="within")
    return {name: value for name, value in options.items() if value is not None}


def for_session(principal: Principal, options: dict[str, Any]) -> None:
    """An end user enqueues for themselves, and names nothing that others could have named, too."""
    if principal.role != "session":
        return
    check_session(principal, options)
    if "unique_key" in options:
        options["unique_key"] = f"{_space_of(principal)}:{options['unique_key']}"
    options["session_id"] = principal.session_id
    if principal.user_id is not None:
        options["user_id"] = principal.user_id


def check_session(principal: Principal, options: Mapping[str, Any]) -> None:
    if principal.role != "session":
        return
    for name in options.keys() - SESSION_OPTIONS:
        raise Refused(403, f"{name}: not with a session token; only {', '.join(SESSION_OPTIONS)}.")


def refuse_own(app: Outlast, type: str) -> None:
    """Work of Outlast's own is enqueued by what it belongs to, which checks who may ask for it."""
    if type in app.builtins:
        raise BadInput(f"{type} is Outlast's own and not enqueued by others.", field="type")


def key_of(request: Request, place: int | None = None) -> str | None:
    """The `Idempotency-Key` of a request, or of a place in its batch; that of somebody else is
    another one. It stands as a hash, so that one as long as it may be fits beside whose it is."""
    key = request.headers.get("idempotency-key")
    if key is None:
        return None
    key = name_of(_bare(key), "Idempotency-Key")
    said = key if place is None else f"{key}\n{place}"  # no key has a line break
    return f"{_space_of(principal_of(request))}:{_digest(said)}"


async def first_of(engine: Engine, key: str, asked: object) -> Mapping[str, str]:
    """What was first asked for under this key, with an `id` for it; no other request has it."""
    digest = hashlib.sha256(msgspec.json.encode(asked, order="sorted")).hexdigest()
    mine = {"id": new_id(), "digest": digest}
    put = Put(kind=KEYS, key=key, value=msgspec.json.encode(mine), expect=0, ttl_ms=IDEMPOTENT_MS)
    [written] = await engine.put([put])
    if written is not None:
        return mine
    found = await engine.get(KEYS, [key])
    first: Mapping[str, str] = msgspec.json.decode(found[0].value) if found else mine
    if first["digest"] != digest:
        raise Mismatch("This Idempotency-Key was used for another request.")
    return first


def _space_of(principal: Principal) -> str:
    """Where the names of a caller live. Of a session it is a hash: its own name may have colons,
    and with some of them end where the name of another begins."""
    if principal.role != "session":
        return principal.id
    return f"session.{_digest(principal.session_id or '')}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _bare(key: str) -> str:
    """The draft writes it as a quoted text; many clients do not."""
    return key[1:-1] if len(key) > 1 and key[0] == key[-1] == '"' else key
