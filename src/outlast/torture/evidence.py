"""Everything that is known when the torture is over, put in order for the judge.

Three witnesses: the ledger knows what was executed, the histories know what was asked and answered
and when, and the engine, at last, what it recorded. The first two are files outside the engine.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import msgspec
from msgspec import Struct

from outlast.core.model import (
    Cursor,
    Dumped,
    Event,
    EventQuery,
    Fence,
    GaugeView,
    Task,
    TaskId,
    WorkerId,
)
from outlast.core.states import Ms
from outlast.engine import Engine
from outlast.torture.load import Spec
from outlast.torture.record import Deed, Fault, Line, Ns, Run, read

NEVER: Ns = 2**63


class Past(Struct, frozen=True):
    """An attempt as the engine recorded it."""

    number: int
    worker: WorkerId
    started_at: Ms
    ended_at: Ms
    outcome: str


@dataclass(frozen=True, slots=True)
class Call:
    """A call of the engine, and its answer if it had one."""

    process: str
    asked: Line
    answer: Line | None

    @property
    def ok(self) -> Line | None:
        return self.answer if self.answer is not None and self.answer.phase == "ok" else None

    @property
    def refused(self) -> bool:
        return self.answer is not None and self.answer.phase == "fail"

    @property
    def told_at(self) -> Ns:
        return NEVER if self.answer is None else self.answer.at


@dataclass(frozen=True, slots=True)
class Grant:
    """A lease that a worker was told of."""

    task: TaskId
    fence: Fence
    number: int
    worker: WorkerId
    call: Call


@dataclass(frozen=True, slots=True)
class Word:
    """What an attempt had to say, in one call: an outcome or news. `taken`: was it accepted?"""

    task: TaskId
    fence: Fence
    state: str
    verdict: str
    call: Call
    taken: bool | None


@dataclass(slots=True)
class Execution:
    """A handler at work, as the ledger knows it. Without an end its process was killed."""

    task: TaskId
    number: int
    pid: int
    start: Ns
    end: Ns | None = None
    how: Deed | None = None


@dataclass(frozen=True)
class Evidence:
    """All of it."""

    planned: dict[TaskId, Spec]
    lease_ns: Ns
    calls: list[Call]
    executions: dict[TaskId, list[Execution]]
    faults: list[Fault]
    tasks: dict[TaskId, Task] = field(default_factory=dict)
    log: list[Event] = field(default_factory=list)
    tailed: list[Cursor] = field(default_factory=list)
    """The cursors that somebody saw who followed the log all the time."""
    gauges: list[GaugeView] = field(default_factory=list)
    stuck: frozenset[TaskId] = frozenset()
    """Still running long after the last fault, when the workers were told to stop."""

    @cached_property
    def pasts(self) -> dict[TaskId, dict[int, Past]]:
        """The recorded attempts of each task, by number."""
        decode = msgspec.json.Decoder(list[Past]).decode
        return {
            t.id: {past.number: past for past in decode(t.attempts)} for t in self.tasks.values()
        }

    @cached_property
    def events(self) -> dict[TaskId, list[Event]]:
        found: dict[TaskId, list[Event]] = defaultdict(list)
        for event in self.log:
            if event.task_id is not None:
                found[event.task_id].append(event)
        return found

    @cached_property
    def grants(self) -> dict[TaskId, list[Grant]]:
        found: dict[TaskId, list[Grant]] = defaultdict(list)
        for call in self.calls:
            for task, fence, number in call.ok.leases if call.ok else ():
                found[task].append(Grant(task, fence, number, call.asked.worker, call))
        return found

    @cached_property
    def numbers(self) -> dict[tuple[TaskId, Fence], int]:
        """The attempt that a fence stands for, in one task."""
        return {(g.task, g.fence): g.number for found in self.grants.values() for g in found}

    @cached_property
    def words(self) -> dict[TaskId, list[Word]]:
        found: dict[TaskId, list[Word]] = defaultdict(list)
        for call in self.calls:
            lost = set(call.ok.lost) if call.ok else set()
            for task, fence, state, verdict in call.asked.outcomes:
                taken = None if call.ok is None else (task, fence) not in lost
                found[task].append(Word(task, fence, state, verdict, call, taken))
        return found

    @cached_property
    def stale(self) -> list[Word]:
        """Writes that were refused as stale. (One whose first answer was lost may have been
        applied then: that is not counted.)"""
        doubtful = {(w.task, w.fence, w.state) for w in self._words() if w.taken is None}
        return [
            word
            for word in self._words()
            if word.taken is False and (word.task, word.fence, word.state) not in doubtful
        ]

    @cached_property
    def enqueues(self) -> dict[TaskId, list[Call]]:
        """The calls that asked for a task."""
        found: dict[TaskId, list[Call]] = defaultdict(list)
        for call in self.calls:
            if call.asked.verb == "enqueue":
                for task in call.asked.ids:
                    found[task].append(call)
        return found

    @cached_property
    def cancels(self) -> dict[TaskId, list[Call]]:
        found: dict[TaskId, list[Call]] = defaultdict(list)
        for call in self.calls:
            if call.asked.verb == "cancel":
                for task in call.asked.ids:
                    found[task].append(call)
        return found

    @cached_property
    def turns(self) -> dict[WorkerId, list[Call]]:
        """The answered turns of each worker, in order."""
        found: dict[WorkerId, list[Call]] = defaultdict(list)
        for call in self.calls:
            if call.asked.verb == "exchange" and call.ok:
                found[call.asked.worker].append(call)
        return found

    def _words(self) -> Iterator[Word]:
        for found in self.words.values():
            yield from found


def answer_for(call: Call, task: TaskId) -> tuple[TaskId, bool] | None:
    """The receipt that an enqueue got for one of its tasks."""
    return None if call.ok is None else call.ok.receipts[call.asked.ids.index(task)]


async def gather(
    engine: Engine,
    folder: Path,
    planned: dict[TaskId, Spec],
    lease_ms: int,
    tailed: Sequence[Cursor],
    stuck: frozenset[TaskId],
) -> Evidence:
    """Read the files, and dump the engine."""
    calls = sorted(_calls(folder), key=lambda call: call.asked.at)
    faults = list(read(folder / "faults", Fault))
    lease_ns = lease_ms * 1_000_000
    evidence = Evidence(planned, lease_ns, calls, _executions(folder), faults, stuck=stuck)
    decode = msgspec.json.Decoder(Dumped).decode
    cursor: Cursor | None = None
    while True:
        page = await engine.dump(cursor)
        for item in page.items:
            if item.kind == "task":
                task = decode(item.data).task
                evidence.tasks[task.id] = task
        if page.next is None or page.next.startswith("event:"):
            break
        cursor = page.next
    query = EventQuery(limit=500)
    while (events := await engine.events(query)).items:
        evidence.log.extend(events.items)
        query = EventQuery(limit=500, after=events.next)
    evidence.tailed.extend(tailed)
    evidence.gauges.extend(await engine.gauges())
    return evidence


def _calls(folder: Path) -> Iterator[Call]:
    for path in folder.glob("history-*"):
        asked: dict[int, Line] = {}
        for line in read(path, Line):
            if line.phase == "invoke":
                asked[line.call] = line
            else:
                yield Call(path.name, asked.pop(line.call), line)
        for line in asked.values():
            yield Call(path.name, line, None)


def _executions(folder: Path) -> dict[TaskId, list[Execution]]:
    found: dict[TaskId, list[Execution]] = defaultdict(list)
    for path in folder.glob("ledger-*"):
        pid = int(path.name.rpartition("-")[2])
        at_work: dict[tuple[TaskId, int], Execution] = {}
        for run in read(path, Run):
            if run.deed == "start":
                execution = Execution(run.task, run.number, pid, run.at)
                at_work[run.task, run.number] = execution
                found[run.task].append(execution)
            else:
                execution = at_work[run.task, run.number]
                execution.end, execution.how = run.at, run.deed
    for some in found.values():
        some.sort(key=lambda execution: execution.number)
    return found
