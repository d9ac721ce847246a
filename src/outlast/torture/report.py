"""The report: what was done, what was seen, and a verdict for each invariant."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from statistics import quantiles
from typing import Final

from msgspec import Struct

from outlast.core.model import TaskId
from outlast.core.states import FINAL
from outlast.torture.check import INVARIANTS, MS, overlaps, recoveries
from outlast.torture.evidence import NEVER, Evidence
from outlast.torture.record import Ns

STORY_LINES: Final = 60
TASKS_PER_STALE: Final = 200
"""A run of 20,000 tasks in which fewer than 100 stale writes were refused proves little."""


class Verdict(Struct, frozen=True, kw_only=True):
    """What became of one invariant: how much was looked at, and what was wrong."""

    id: str
    promise: str
    checked: int
    violations: int
    example: str | None = None
    """The violation with the shortest history, in a sentence."""
    history: tuple[str, ...] = ()
    """That history: everything known about that one task, in order."""

    @property
    def holds(self) -> bool:
        return not self.violations


class Report(Struct, frozen=True, kw_only=True):
    """All that people and programs want to know of a run."""

    engine: str
    durability: str
    seed: int
    seconds: float
    tasks: int
    states: dict[str, int]
    faults: dict[str, int]
    seen: dict[str, int]
    """How often each thing happened that a run is for."""
    unseen: tuple[str, ...]
    """What should have happened and did not: the run proves nothing about it."""
    rerun_ms: dict[str, tuple[int, int]]
    """Fault -> p50 and p99 of how long its victims' tasks waited until they ran again, where that
    was before the next fault."""
    recovery_ms: dict[str, int]
    """Fault of the engine -> the slowest first claim after it."""
    verdicts: tuple[Verdict, ...]
    passed: bool


def judge(
    e: Evidence, *, engine: str, durability: str, seed: int, seconds: float, wanted: Iterable[str]
) -> Report:
    """`wanted` are the kinds of faults that were to happen."""
    seen = sightings(e)
    faults = Counter(fault.kind for fault in e.faults)
    unseen = [what for what, least in expected(e, faults).items() if seen[what] < least]
    unseen += [f"fault: {kind}" for kind in wanted if not faults[kind]]
    verdicts = tuple(_verdict(e, invariant.id) for invariant in INVARIANTS)
    recovery: dict[str, int] = {}
    for kind, took in recoveries(e):
        if took is not None:
            recovery[kind] = max(recovery.get(kind, 0), took // MS)
    return Report(
        engine=engine,
        durability=durability,
        seed=seed,
        seconds=round(seconds, 1),
        tasks=len(e.tasks),
        states=dict(Counter(task.state for task in e.tasks.values())),
        faults=dict(faults),
        seen=seen,
        unseen=tuple(unseen),
        rerun_ms=dict(_reruns(e)),
        recovery_ms=recovery,
        verdicts=verdicts,
        passed=not unseen and all(verdict.holds for verdict in verdicts),
    )


def _verdict(e: Evidence, id: str) -> Verdict:
    [invariant] = [one for one in INVARIANTS if one.id == id]
    findings = list(invariant.look(e))
    wrong = [(task, told) for task, told in findings if told is not None]
    stories = [(story(e, task), f"{task}: {told}") for task, told in wrong[:200]]
    history, example = min(stories, key=lambda one: len(one[0]), default=((), None))
    return Verdict(
        id=id,
        promise=invariant.promise,
        checked=len(findings),
        violations=len(wrong),
        example=example,
        history=tuple(history[:STORY_LINES]),
    )


# Not vacuous -------------------------------------------------------------------------------------


def sightings(e: Evidence) -> dict[str, int]:
    ends = Counter((task.state, task.reason) for task in e.tasks.values())
    pasts = [past for some in e.pasts.values() for past in some.values()]
    outcomes = Counter(past.outcome for past in pasts)
    altered = Counter(
        (applied, met in FINAL, met)
        for calls in e.cancels.values()
        for call in calls
        for _, applied, met in (call.ok.altered if call.ok else ())
    )
    receipts = [
        (asked, got, existing)
        for call in e.calls
        if call.ok and call.asked.verb == "enqueue"
        for asked, (got, existing) in zip(call.asked.ids, call.ok.receipts, strict=True)
    ]
    return {
        "leases run out": sum(call.ok.evicted for call in e.calls if call.ok),
        "stale writes refused": len(e.stale),
        "attempts lost": outcomes["stalled"],
        "replies unknown": sum(call.ok is None and not call.refused for call in e.calls),
        "attempts failed": outcomes["failed"],
        "attempts given back": outcomes["released"],
        "dead by failures": ends["dead", "attempts"],
        "dead by losses": ends["dead", "stalled"],
        "cancelled while waiting": altered[True, False, "pending"],
        "cancelled while running": altered[True, False, "running"],
        "changes of what is over refused": sum(
            n for (applied, over, _), n in altered.items() if over and not applied
        ),
        "enqueued again, same task": sum(ex and a == g for a, g, ex in receipts),
        "unique keys met": sum(asked != got for asked, got, _ in receipts),
        "dependents cancelled": ends["cancelled", "upstream"],
        "waited for a slot": sum(b'"throttled"' in ev.data for ev in e.log if ev.kind == "state"),
        "two copies at once": sum(1 for some in e.executions.values() for _ in overlaps(some)),
    }


def expected(e: Evidence, faults: Mapping[str, int]) -> dict[str, int]:
    """What a run with these faults must have seen, and how often at least."""
    least = {
        "attempts failed": 1,
        "dead by failures": 1,
        "cancelled while waiting": 1,
        "cancelled while running": 1,
        "changes of what is over refused": 1,
        "unique keys met": 1,
        "dependents cancelled": 1,
        "waited for a slot": 1,
    }
    if any(kind.startswith("kill") for kind in faults):
        least |= {"attempts lost": 1}
    if faults.get("pause worker") or faults.get("pause group"):
        stale = max(1, len(e.tasks) // TASKS_PER_STALE)
        least |= {"leases run out": 1, "stale writes refused": stale, "attempts lost": 1}
    if faults.get("lose replies"):
        least |= {"replies unknown": 1}
    return least


def _reruns(e: Evidence) -> Iterator[tuple[str, tuple[int, int]]]:
    waits: dict[str, list[Ns]] = defaultdict(list)
    killed = {pid: i for i, fault in enumerate(e.faults) for pid in fault.killed}
    following = [*(fault.begin for fault in e.faults[1:]), NEVER]
    for executions in e.executions.values():
        for lost, then in pairwise(executions):
            i = killed.get(lost.pid)
            if lost.end is None and i is not None and then.start < following[i]:
                waits[e.faults[i].kind].append(max(then.start - e.faults[i].begin, 0))
    for kind, some in waits.items():
        cuts = quantiles(some, n=100) if len(some) > 1 else [some[0]] * 99
        yield kind, (int(cuts[49]) // MS, int(cuts[98]) // MS)


# One task's story --------------------------------------------------------------------------------


def story(e: Evidence, task: TaskId) -> list[str]:
    """Everything that is known about one task, in order of the machine's clock."""
    lines: list[tuple[Ns, str]] = []
    for call in (*e.enqueues.get(task, ()), *e.cancels.get(task, ())):
        phase = call.answer.phase if call.answer else "unknown, the caller was killed"
        lines.append((call.asked.at, f"{call.asked.verb} asked by {call.process}: {phase}"))
    for grant in e.grants.get(task, ()):
        lines.append((grant.call.told_at, f"attempt {grant.number} given to {grant.worker}"))
    for word in e.words.get(task, ()):
        number = e.numbers.get((task, word.fence), "?")
        taken = {True: "accepted", False: "refused", None: "unknown"}[word.taken]
        what = "news" if word.state == "running" else f"{word.verdict}, to be {word.state}"
        lines.append((word.call.asked.at, f"attempt {number} says: {what}: {taken}"))
    for run in e.executions.get(task, ()):
        lines.append((run.start, f"attempt {run.number} starts in process {run.pid}"))
        if run.end is not None:
            lines.append((run.end, f"attempt {run.number}: {run.how}"))
    begin = min((at for at, _ in lines), default=0)
    told = [f"{(at - begin) / 1e6:10.1f} ms  {text}" for at, text in sorted(lines)]
    for event in e.events.get(task, ()):
        if event.kind in ("state", "done"):
            told.append(f"log {event.cursor}: {event.kind} {event.attempt} {event.data.decode()}")
    record = e.tasks.get(task)
    if record is not None:
        pasts = [f"{past.number} {past.outcome}" for past in e.pasts[task].values()]
        told.append(
            f"record: {record.type}, {record.state} ({record.reason}), attempt {record.attempt}, "
            f"{record.losses} losses, result {record.result!r}; attempts: {', '.join(pasts)}"
        )
    return told
