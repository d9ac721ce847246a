"""The judge of the demo: from what the log, the records, the ledger and the stand-in say to a
verdict for each thing that was promised. Nothing is believed because the director did it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from outlast.core.model import Event, EventQuery, TaskId, TaskQuery, WorkerId
from outlast.core.states import Ms, Status
from outlast.demo.app import GATE_BEFORE, PARTS, SHAKY, Line
from outlast.engine import Engine
from outlast.torture.record import read

PAGE: Final = 500


class Past(Struct, frozen=True, kw_only=True):
    """An attempt in the history of a record."""

    number: int
    worker: WorkerId = ""
    started_at: Ms = 0
    ended_at: Ms = 0
    outcome: str = "succeeded"
    error: dict[str, Any] | None = None

    @property
    def was_throttled(self) -> bool:
        return self.outcome == "waiting" and (self.error or {}).get("code") == "rate_limit"


class Seen(Struct, frozen=True, kw_only=True):
    """What the engine has recorded of a task."""

    type: str
    status: Status = "completed"
    attempt: int = 1
    attempts: tuple[Past, ...] = (Past(number=1),)
    result: Any = None


class Evidence(Struct, frozen=True, kw_only=True, dict=True):
    """Everything that is known when the show is over."""

    acknowledged: tuple[TaskId, ...]
    """The tasks for which an enqueue gave a receipt."""
    tasks: dict[TaskId, Seen]
    log: tuple[Event, ...]
    ledger: tuple[Line, ...]
    misbehaved: dict[str, int]
    """How often the stand-in for a model answered in each of its bad ways."""
    killed: int | None
    """The worker process that was sent SIGKILL."""
    rest_ms: int
    """For how long the 429 asked everyone to stay away."""

    @cached_property
    def events(self) -> dict[TaskId, list[tuple[Event, dict[str, Any]]]]:
        found: dict[TaskId, list[tuple[Event, dict[str, Any]]]] = defaultdict(list)
        for event in self.log:
            if event.task_id is not None:
                found[event.task_id].append((event, msgspec.json.decode(event.data)))
        return found

    def of_type(self, *types: str) -> dict[TaskId, Seen]:
        """The acknowledged tasks of these types that are there."""
        return {
            id: self.tasks[id]
            for id in self.acknowledged
            if id in self.tasks and self.tasks[id].type in types
        }

    def ends(self, id: TaskId) -> list[str]:
        """The final states that the log tells of a task, in order."""
        return [data["status"] for event, data in self.events[id] if event.kind == "done"]

    def deeds(self, id: TaskId) -> list[Line]:
        return [line for line in self.ledger if line.task == id]


class Claim(Struct, frozen=True, kw_only=True):
    """One thing that was to come true: what was found, and what is wrong with it, if anything."""

    name: str
    told: str
    wrong: str = ""


class Summary(Struct, frozen=True, kw_only=True):
    """What came of a show."""

    engine: str
    seed: int
    seconds: float
    claims: tuple[Claim, ...]
    cut_off: str = ""
    """What was going on when the time was up."""

    @property
    def passed(self) -> bool:
        return not self.cut_off and not any(claim.wrong for claim in self.claims)


async def gather(
    engine: Engine,
    folder: Path,
    *,
    acknowledged: Sequence[TaskId],
    misbehaved: dict[str, int],
    killed: int | None,
    rest_ms: int,
) -> Evidence:
    """Read the engine and the ledger."""
    tasks: dict[TaskId, Seen] = {}
    query = TaskQuery(limit=PAGE)
    while True:
        page = await engine.tasks(query)
        for task in page.items:
            tasks[task.id] = Seen(
                type=task.type,
                status=task.status,
                attempt=task.attempt,
                attempts=msgspec.json.decode(task.attempts, type=tuple[Past, ...]),
                result=None if task.result is None else msgspec.json.decode(task.result),
            )
        if page.next is None:
            break
        query = msgspec.structs.replace(query, cursor=page.next)
    log: list[Event] = []
    reading = EventQuery(limit=PAGE)
    while (events := await engine.events(reading)).items:
        log.extend(events.items)
        reading = EventQuery(limit=PAGE, after=events.next)
    return Evidence(
        acknowledged=tuple(acknowledged),
        tasks=tasks,
        log=tuple(log),
        ledger=tuple(ledger(folder)),
        misbehaved=misbehaved,
        killed=killed,
        rest_ms=rest_ms,
    )


def ledger(folder: Path) -> Iterator[Line]:
    """What every process wrote, each in its own order."""
    for path in sorted(folder.glob("ledger-*")):
        yield from read(path, Line)


def judge(e: Evidence) -> tuple[Claim, ...]:
    return tuple(
        Claim(name=name, told=told, wrong=wrong)
        for name, check in CLAIMS.items()
        for told, wrong in [check(e)]
    )


# The claims: what was found, and what is wrong with it --------------------------------------------

Found = tuple[str, str]


def _done(e: Evidence) -> Found:
    lost = [id for id in e.acknowledged if id not in e.tasks or e.tasks[id].status != "completed"]
    twice = [id for id in e.acknowledged if e.ends(id).count("completed") > 1]
    silent = [id for id in e.acknowledged if id not in lost and "completed" not in e.ends(id)]
    done = len(e.acknowledged) - len(lost)
    told = f"{done} of {len(e.acknowledged)} done, {len(lost)} lost, {len(twice)} ended twice"
    if not e.acknowledged:
        return told, "nothing was enqueued"
    if lost:
        where = e.tasks[lost[0]].status if lost[0] in e.tasks else "nowhere"
        return told, f"{len(lost)} were acknowledged and are not done, {lost[0]} is {where}"
    if twice:
        return told, f"{twice[0]} ended twice"
    return told, f"the log does not tell of the end of {silent[0]}" if silent else ""


def _streamed(e: Evidence) -> Found:
    summaries, batches = e.of_type("summarize"), e.of_type("embed")
    pieces, torn = 0, []
    for id, seen in summaries.items():
        last = seen.attempts[-1].number if seen.attempts else 0
        said = [
            data["chunk"]
            for event, data in e.events[id]
            if event.kind == "chunk" and event.attempt == last
        ]
        pieces += len(said)
        torn += [id] if "".join(said) != seen.result else []
    texts = sum(seen.result or 0 for seen in batches.values())
    told = f"{len(summaries)} summaries in {pieces} pieces, {texts} texts embedded"
    if not pieces or not texts:
        return told, "there is nothing to see"
    return told, f"what was streamed of {torn[0]} is not its result" if torn else ""


def _throttled(e: Evidence) -> Found:
    asked = e.of_type("summarize", "embed")
    pasts = [past for seen in asked.values() for past in seen.attempts]
    refused = [past for past in pasts if past.was_throttled]
    charged = [id for id, seen in asked.items() if seen.attempt != 1]
    told = f"{len(refused)} answered with 429, {len(charged)} attempts lost, everyone waited"
    if not refused or len(refused) != e.misbehaved.get("rate_limit", 0):
        answered = e.misbehaved.get("rate_limit", 0)
        return told, f"{answered} requests were refused, and {len(refused)} are recorded"
    if charged:
        return told, f"the refusal cost {charged[0]} an attempt"
    for refusal in refused:
        until = refusal.ended_at + e.rest_ms
        if any(refusal.ended_at < past.started_at < until for past in pasts):
            return told, "somebody asked during the pause"
    return told, ""


def _circuit(e: Evidence) -> Found:
    turns = [
        data["circuit"]
        for event in e.log
        if event.kind == "circuit"
        for data in [msgspec.json.decode(event.data)]
        if data["key"] == SHAKY
    ]
    told = f"opened {turns.count('open')}, closed {turns.count('closed')}"
    if "open" not in turns:
        return told, "it never opened"
    return told, "" if turns[-1] == "closed" else "it did not close"


def _steps(e: Evidence) -> Found:
    reports = e.of_type("report")
    wanted = [(id, f"part {n}") for id in reports for n in range(1, PARTS + 1)]
    done = Counter((line.task, line.deed) for line in e.ledger)
    stored = Counter(
        (id, data["step"]) for id in reports for event, data in e.events[id] if event.kind == "step"
    )
    again = [step for step in wanted if done[step] > 1]
    missing = [step for step in wanted if not done[step] or stored[step] != 1]
    told = f"{len(again)} of {len(wanted)} repeated"
    if not wanted:
        return told, "there was none"
    if again:
        id, part = again[0]
        return told, f"{part} of {id} was done {done[again[0]]} times"
    return told, f"{missing[0][1]} of {missing[0][0]} was not done once" if missing else ""


def _killed(e: Evidence) -> Found:
    """The ledger knows who wrote which part, the history that a worker was lost."""
    reports = e.of_type("report")
    held = [id for id in reports if any(line.pid == e.killed for line in e.deeds(id))]
    stalled = [id for id in reports if any(p.outcome == "stalled" for p in reports[id].attempts)]
    wrong = [id for id in held if not _went_on(e, id)]
    went_on = len(held) - len(wrong)
    told = (
        f"{int(e.killed is not None)} by SIGKILL, {went_on} tasks went on at step {GATE_BEFORE}"
        f" of {PARTS}"
    )
    if e.killed is None or not held:
        return told, "no worker was killed that had work"
    if sorted(held) != sorted(stalled):
        return told, f"it held {len(held)} tasks, and {len(stalled)} are recorded as stalled"
    return told, f"{wrong[0]} did not go on where it was" if wrong else ""


def _went_on(e: Evidence, id: TaskId) -> bool:
    """Was all before the gate written by the killed process, and the rest by others?"""
    return e.tasks[id].status == "completed" and all(
        (line.pid == e.killed) == (int(line.deed.removeprefix("part ")) < GATE_BEFORE)
        for line in e.deeds(id)
        if line.deed != "gate"
    )


def _approved(e: Evidence) -> Found:
    agents = e.of_type("agent")
    asked = answered = acted = 0
    for id in agents:
        kinds = [event.kind for event, _ in e.events[id]]
        asked += kinds.count("question")
        answered += kinds.count("signal")
        acted += sum(line.deed == "act" for line in e.deeds(id))
    told = f"{asked} asked, {answered} answered, {acted} acted on"
    if not asked or answered < asked:
        return told, "a question was not answered" if asked else "nobody asked"
    allowed = sum(str(seen.result).startswith("did ") for seen in agents.values()) - sum(
        str(seen.result).startswith("did not ") for seen in agents.values()
    )
    return told, "" if acted == allowed else "what was done is not what was allowed"


def _redriven(e: Evidence) -> Found:
    invoices = e.of_type("invoice")
    died = [id for id in invoices if "dead" in e.ends(id)]
    back = [id for id in died if e.ends(id) == ["dead", "completed"]]
    told = f"{len(died)} died, {len(back)} redriven and done"
    if not died:
        return told, "none died"
    return told, "" if len(back) == len(died) else "some are still dead"


CLAIMS: Final[dict[str, Callable[[Evidence], Found]]] = {
    "tasks": _done,
    "streams": _streamed,
    "throttle": _throttled,
    "circuit": _circuit,
    "steps": _steps,
    "killed worker": _killed,
    "approval": _approved,
    "redrive": _redriven,
}
