"""The calls of workers over HTTP: take leases, keep them, tell how far they are, end them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict, Unpack

from outlast.client.wire import Call, path, shaped
from outlast.core.codec import dumps
from outlast.core.ids import new_id
from outlast.http.schemas import Claimed, Ended, Kept, LeasedTask


def claim(
    worker: str,
    *,
    queues: Sequence[str] = (),
    types: Sequence[str] = (),
    max: int = 1,
    wait_s: float = 0,
) -> Call[list[LeasedTask]]:
    """Take tasks to work on: up to `max`, waiting up to `wait_s` seconds for the first. Then call
    `heartbeat` every 3 s, and end each with `complete`, `fail` or `release`."""
    told = {
        "worker": worker, "queues": list(queues), "types": list(types), "max": max, "wait": wait_s,
        "token": new_id(),  # a repetition gets the same leases
    }  # fmt: skip
    return Call(
        method="POST", path="/leases", read=lambda data: shaped(Claimed)(data).items,
        body=dumps(told, "claim"), again=True, wait_s=wait_s,
    )  # fmt: skip


def heartbeat(lease: str) -> Call[Kept]:
    """Keep a lease, and those taken with it. Stop when `cancel` is set, and on `LeaseLost`."""
    where = path("/leases/{lease}/heartbeat", lease=lease)
    return Call(method="POST", path=where, read=shaped(Kept), again=True)


def progress(
    lease: str, percent: float, message: str = "", data: Mapping[str, object] | None = None
) -> Call[Kept]:
    """Tell how far it is."""
    told = {"percent": percent, "message": message, "data": data or {}}
    return Call(
        method="POST", path=path("/leases/{lease}/progress", lease=lease), read=shaped(Kept),
        body=dumps(told, "progress"), again=True,
    )  # fmt: skip


def emit(lease: str, chunk: object) -> Call[Kept]:
    """Put out a chunk of output for whoever follows. A lost reply is not repeated."""
    return Call(
        method="POST", path=path("/leases/{lease}/emit", lease=lease), read=shaped(Kept),
        body=dumps({"chunk": chunk}, "chunk"),
    )  # fmt: skip


class Used(TypedDict, total=False):
    """What an attempt has used; `more` is whatever else is counted."""

    tokens: int
    cost: float | str
    model: str
    input_tokens: int
    output_tokens: int
    more: Mapping[str, float]


def used(lease: str, **usage: Unpack[Used]) -> Call[Kept]:
    """Tell what was used since it was last told. A lost reply is not repeated; what is told with
    the end (`usage=`) is counted once, however often that is."""
    return Call(
        method="POST", path=path("/leases/{lease}/usage", lease=lease), read=shaped(Kept),
        body=dumps(usage, "usage"),
    )  # fmt: skip


def complete(lease: str, result: object = None, *, usage: Used | None = None) -> Call[Ended]:
    """It is done: here is the result."""
    return Call(
        method="POST", path=path("/leases/{lease}/complete", lease=lease), read=shaped(Ended),
        body=dumps({"result": result, "usage": usage}, "result", reveal=True), again=True,
    )  # fmt: skip


def fail(
    lease: str,
    error: Mapping[str, object] | Exception | None = None,
    *,
    retry: bool | str | float | None = None,
    usage: Used | None = None,
) -> Call[Ended]:
    """It failed. `retry`: False never, True by the schedule, or after how long; None leaves it to
    the policy of the type."""
    if isinstance(error, Exception):
        error = {"type": type(error).__name__, "message": str(error)}
    return Call(
        method="POST", path=path("/leases/{lease}/fail", lease=lease), read=shaped(Ended),
        body=dumps({"error": error, "retry": retry, "usage": usage}, "failure"), again=True,
    )  # fmt: skip


def release(lease: str) -> Call[Ended]:
    """Give it back, at no cost."""
    where = path("/leases/{lease}/release", lease=lease)
    return Call(method="POST", path=where, read=shaped(Ended), again=True)
