"""Requests and answers as values: what both clients share, and nothing of how bytes travel."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from math import ceil
from random import random
from time import monotonic
from typing import Any, Final, Generic, TypeVar
from urllib.parse import quote, urlsplit

import httpx2
import msgspec
from msgspec import Struct

from outlast.client.errors import (
    ApiError,
    NotOutlast,
    TooManyRequests,
    Unavailable,
    Unreachable,
    error_of,
)
from outlast.core.durations import Duration, show_ms, to_ms
from outlast.core.errors import BadInput, OutlastError, TaskCancelled, TaskDead, WaitTimeout
from outlast.core.states import FINAL, Ms, Status
from outlast.core.text import safe_url
from outlast.http.schemas import Progress, Task
from outlast.options import HasId

T = TypeVar("T")

API: Final = "/api/v1"
DEFAULT_URL: Final = "http://127.0.0.1:5278"
LONG_POLL_S: Final = 20
SILENCE_S: Final = 60.0
"""A stream that says nothing for this long is dead: servers send a sign of life every 15 s."""
PATIENT_RETRIES: Final = 8
"""For what waits or follows: about twenty seconds, in which a server starts again."""
FIRST_PAUSE_S, LONGEST_PAUSE_S, LONGEST_WAIT_S = 0.2, 5.0, 60.0


class Call(Struct, Generic[T], frozen=True, kw_only=True):
    """One request, and how its answer is read."""

    method: str
    path: str
    read: Callable[[bytes], T]
    params: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}
    body: bytes | None = None
    again: bool = False
    """It may be sent twice: when the reply got lost, nobody knows whether it was done."""
    wait_s: float = 0
    """How long the server may take on purpose."""


class Event(Struct, frozen=True, kw_only=True):
    """Something that happened."""

    kind: str
    """`state`, `progress`, `chunk`, `step`, `signal`, `rollback`, `overdue`, `reset`, `done`, …"""
    cursor: str
    """Where to go on: `stream(task, after=cursor)`."""
    data: dict[str, Any]
    """Everything that the event says."""

    @property
    def task_id(self) -> str | None:
        return self.data.get("task_id")

    @property
    def attempt(self) -> int:
        return self.data.get("attempt") or 0

    @property
    def at(self) -> str | None:
        return self.data.get("at")

    @property
    def status(self) -> Status | None:
        """Of a `state` or `done`."""
        return self.data.get("status")

    @property
    def progress(self) -> Progress | None:
        """Of a `progress`."""
        told = self.data.get("progress")
        return None if told is None else msgspec.convert(told, Progress)

    @property
    def chunk(self) -> object:
        """Of a `chunk`: what the handler put out."""
        return self.data.get("chunk")


# Requests ----------------------------------------------------------------------------------------


def path(template: str, **parts: str) -> str:
    """`/tasks/{id}` with its parts in place, each quoted."""
    return template.format(**{name: quote(part, safe="") for name, part in parts.items()})


def id_of(task: HasId | str) -> str:
    return task if isinstance(task, str) else task.id


def shaped(shape: type[T]) -> Callable[[bytes], T]:
    """Reads an answer of this shape; what a newer server says beyond it is ignored."""
    return msgspec.json.Decoder(shape).decode


def nothing(data: bytes) -> None:
    """Reads an answer that has no body."""


class Link:
    """Where the server is, who asks, and when to ask again."""

    def __init__(self, url: str | None, key: str | None, timeout: Duration, retries: int) -> None:
        self.url = (url or os.environ.get("OUTLAST_SERVER") or DEFAULT_URL).rstrip("/")
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadInput(
                f"{safe_url(self.url)!r} is no address of a server: write http://127.0.0.1:5278."
            )
        self.shown = safe_url(self.url)
        self._retries = retries
        self._timeout_s = to_ms(timeout) / 1000
        self.headers = {"accept": "application/json"}
        key = key or os.environ.get("OUTLAST_KEY")
        if key:
            if not key.isascii() or not key.isprintable() or " " in key:
                raise BadInput("The key has characters that no key has: was it copied whole?")
            self.headers["authorization"] = f"Bearer {key}"

    def request(self, http: httpx2.Client | httpx2.AsyncClient, call: Call[T]) -> httpx2.Request:
        headers = {**self.headers, **call.headers}
        if call.body is not None:
            headers["content-type"] = "application/json"
        return http.build_request(
            call.method,
            self.url + API + call.path,
            params=call.params,
            headers=headers,
            content=call.body,
            timeout=httpx2.Timeout(self._timeout_s, read=self._timeout_s + call.wait_s),
        )

    def read(self, call: Call[T], reply: httpx2.Response) -> T:
        self.check(reply)
        try:
            return call.read(reply.content)
        except msgspec.DecodeError as error:
            raise NotOutlast(
                f"{self.shown} answered {call.method} {call.path} with something else ({error}):"
                " is an Outlast server there, of this version?"
            ) from error

    def check(self, reply: httpx2.Response) -> None:
        if reply.status_code >= 400:
            raise error_of(reply.status_code, reply.content, reply.headers.get("retry-after"))
        if reply.status_code >= 300:
            raise NotOutlast(f"{self.shown} sends us elsewhere ({reply.status_code}): ask there.")

    def pause(self, error: Exception, tries: int, *, again: bool, patient: bool = False) -> float:
        """How long to wait before it is tried again; raises the error when it is not."""
        most = max(self._retries, PATIENT_RETRIES) if patient and self._retries else self._retries
        if tries >= most or not _is_worth_it(error, again=again):
            if isinstance(error, OutlastError):
                raise error
            told = str(error) or type(error).__name__
            raise Unreachable(f"{self.shown} does not answer: {told}.") from error
        wanted = getattr(error, "retry_after_s", None)
        if wanted is not None:
            return float(min(wanted, LONGEST_WAIT_S))
        # Apart from each other, so that clients do not all come back at once.
        return float(min(FIRST_PAUSE_S * 2**tries, LONGEST_PAUSE_S) * (0.5 + random()))  # noqa: S311


def _is_worth_it(error: Exception, *, again: bool) -> bool:
    if isinstance(error, TooManyRequests | httpx2.ConnectError | httpx2.ConnectTimeout):
        return True  # nothing was done
    return again and isinstance(error, Unavailable | httpx2.TransportError)


RETRIED: Final = (ApiError, httpx2.TransportError)


# Waiting -----------------------------------------------------------------------------------------


class Patience:
    """How long to wait for a task."""

    def __init__(self, timeout: Duration | None) -> None:
        self._timeout_ms = None if timeout is None else to_ms(timeout)
        self._began = monotonic()

    def next_s(self) -> int:
        """What to ask the server for."""
        return LONG_POLL_S if (left := self._left_s()) is None else min(ceil(left), LONG_POLL_S)

    def is_over(self, task: Task) -> bool:
        if task.state in FINAL:
            return True
        left = self._left_s()
        if left is not None and left <= 0:
            raise WaitTimeout(
                f"Task {task.id} is {task.status} after {show_ms(self._timeout_ms or 0)}; it goes"
                " on and can be waited for again."
            )
        return False

    def _left_s(self) -> float | None:
        if self._timeout_ms is None:
            return None
        return max(self._timeout_ms / 1000 - (monotonic() - self._began), 0)


def result_of(task: Task) -> object:
    """The result of a task that is over; `TaskDead` or `TaskCancelled` if it has none."""
    if task.state == "dead":
        error = None if task.error is None else msgspec.to_builtins(task.error)
        raise TaskDead(task.id, task.reason, error)
    if task.state == "cancelled":
        raise TaskCancelled(task.id, task.reason)
    return task.result


def ms_of(moment: str | None) -> Ms:
    """A moment as answers write it, in milliseconds."""
    return 0 if moment is None else round(datetime.fromisoformat(moment).timestamp() * 1000)


# Following ---------------------------------------------------------------------------------------


class Following:
    """The place in a stream of server-sent events, kept over as many connections as it takes."""

    def __init__(self, call: Call[None], after: str | None, *, until_done: bool) -> None:
        self._call = call
        self._cursor = after
        self._until_done = until_done
        self.failures = 0
        self.is_over = False
        self.lost = httpx2.RemoteProtocolError("the stream ended before the task did")

    def call(self) -> Call[None]:
        """The request that goes on where the last connection ended."""
        headers = {"accept": "text/event-stream"}
        if self._cursor:
            headers["last-event-id"] = self._cursor
        self._rest, self._fields = b"", dict[str, str]()
        return msgspec.structs.replace(self._call, headers=headers, wait_s=SILENCE_S)

    def feed(self, data: bytes) -> Iterator[Event]:
        """The events in what has come."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            name, _, value = line.decode().rstrip("\r").partition(":")
            if name:
                self._fields[name] = value.removeprefix(" ")
            elif not value and (event := self._event()) is not None:
                yield event

    def _event(self) -> Event | None:
        fields, self._fields = self._fields, {}
        self._cursor = fields.get("id", self._cursor)
        if "data" not in fields:
            return None
        self.failures = 0
        kind = fields.get("event", "message")
        self.is_over = self._until_done and kind == "done"
        data = msgspec.json.decode(fields["data"], type=dict[str, Any])
        return Event(kind=kind, cursor=self._cursor or "", data=data)
