"""What happened, as those saw it who were there: the ledger of handlers, the history of engine
calls, and the log of faults.

Each process appends lines to files of its own, in single writes: a killed process loses nothing
that it had written. Moments are nanoseconds of the machine's monotonic clock, the same in every
process, so that "before" needs no other clock to be right.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Iterator, Sequence
from pathlib import Path
from random import random
from time import monotonic_ns
from typing import Final, Literal, TypedDict, TypeVar, cast

import msgspec
from msgspec import Struct

from outlast.core.errors import BadInput, EngineDown
from outlast.core.model import Altered, Change, Deal, NewTask, Receipt, TaskId, Turn
from outlast.engine import Engine, connect

T = TypeVar("T")
S = TypeVar("S", bound=Struct)

Ns = int
Phase = Literal["invoke", "ok", "fail", "unknown"]
Deed = Literal["start", "end", "fail", "halt"]

LOSE_REPLIES: Final = "lose-replies"
"""While a file of this name is in the folder, a third of the answers do not reach their callers."""
LOST_SHARE: Final = 0.33


class Line(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One line of a history: a call is asked (`invoke`), and later answered, or never.

    `fail` is a refusal: nothing was changed. `unknown` is everything else that is no answer: it
    may have happened or not.
    """

    call: int
    phase: Phase
    at: Ns
    verb: str = ""
    worker: str = ""
    ids: tuple[TaskId, ...] = ()
    outcomes: tuple[tuple[TaskId, int, str, str], ...] = ()
    """(task, fence, state, verdict)"""
    leases: tuple[tuple[TaskId, int, int], ...] = ()
    """(task, fence, number of the attempt)"""
    lost: tuple[tuple[TaskId, int], ...] = ()
    evicted: bool = False
    receipts: tuple[tuple[TaskId, bool], ...] = ()
    altered: tuple[tuple[TaskId, bool, str | None], ...] = ()
    """(task, was it applied, the state it met)"""
    error: str = ""


class Run(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One line of a ledger: what a handler did."""

    deed: Deed
    task: TaskId
    number: int
    at: Ns


class Fault(Struct, frozen=True, kw_only=True):
    """One line of the nemesis: what was done to whom, and until when."""

    kind: str
    target: str
    seed: int
    begin: Ns
    end: Ns
    """When it was over: the process back, the link healed, the server answering."""
    killed: tuple[int, ...] = ()
    """Processes that it killed."""
    trouble: str = ""
    """What should not have followed from it: a worker that gave up, a child that lived on."""


class _Head(TypedDict):
    """What every line of a history begins with."""

    call: int
    phase: Phase
    at: Ns
    verb: str


def _ok(asked: Line) -> _Head:
    return {"call": asked.call, "phase": "ok", "at": monotonic_ns(), "verb": asked.verb}


class Pages:
    """A file of lines that only this process writes."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._encode = msgspec.json.Encoder().encode

    def write(self, line: Struct) -> None:
        os.write(self._fd, self._encode(line) + b"\n")


def read(path: Path, kind: type[S]) -> Iterator[S]:
    """The lines of a file. The last one may be cut off: its process was killed."""
    decode = msgspec.json.Decoder(kind).decode
    for line in path.read_bytes().splitlines(keepends=True):
        if line.endswith(b"\n"):
            yield decode(line)


class Recording:
    """An engine whose enqueues, exchanges and alters leave a history; everything else passes."""

    def __init__(self, engine: Engine, folder: Path, process: str) -> None:
        self._engine = engine
        self._history = Pages(folder / f"history-{process}-{os.getpid()}")
        self._lossy = str(folder / LOSE_REPLIES)
        self._calls = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._engine, name)

    async def enqueue(self, tasks: Sequence[NewTask], *, within: object = None) -> list[Receipt]:
        asked = Line(**self._asked("enqueue"), ids=tuple(task.id for task in tasks))
        receipts = await self._answer(asked, self._engine.enqueue(tasks, within=within))
        told = tuple((receipt.id, receipt.existing) for receipt in receipts)
        self._ok(asked, Line(**_ok(asked), receipts=told))
        return receipts

    async def exchange(self, turn: Turn) -> Deal:
        told = tuple((o.id, o.fence, o.state, o.verdict) for o in turn.outcomes)
        asked = Line(**self._asked("exchange"), worker=turn.worker, outcomes=told)
        deal = await self._answer(asked, self._engine.exchange(turn))
        leases = tuple((lease.id, lease.fence, lease.number) for lease in deal.leases)
        answer = Line(**_ok(asked), leases=leases, lost=deal.lost, evicted=deal.evicted)
        self._ok(asked, answer)
        return deal

    async def alter(self, ids: Sequence[TaskId], change: Change) -> list[Altered]:
        asked = Line(**self._asked(type(change).__name__.lower()), ids=tuple(ids))
        altered = await self._answer(asked, self._engine.alter(ids, change))
        told = tuple((one.id, one.applied, one.state) for one in altered)
        self._ok(asked, Line(**_ok(asked), altered=told))
        return altered

    def _asked(self, verb: str) -> _Head:
        self._calls += 1
        return {"call": self._calls, "phase": "invoke", "at": monotonic_ns(), "verb": verb}

    async def _answer(self, asked: Line, call: Awaitable[T]) -> T:
        self._history.write(asked)
        try:
            return await call
        except BaseException as error:
            phase: Phase = "fail" if isinstance(error, BadInput) else "unknown"
            self._no_answer(asked, phase, f"{type(error).__name__}: {error}")
            raise

    def _ok(self, asked: Line, answer: Line) -> None:
        if os.path.exists(self._lossy) and random() < LOST_SHARE:  # noqa: S311  # no secret
            self._no_answer(asked, "unknown", "the reply was lost on purpose")
            raise EngineDown("The reply was lost on purpose.")
        self._history.write(answer)

    def _no_answer(self, asked: Line, phase: Phase, error: str) -> None:
        self._history.write(Line(call=asked.call, phase=phase, at=monotonic_ns(), error=error))


def recorded(url: str, folder: Path, process: str) -> Engine:
    """The engine of a URL, its calls recorded."""
    return cast(Engine, Recording(connect(url), folder, process))
