"""The judge: what it is not shown it does not believe, and what it is shown it names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from outlast.core.errors import BadInput, EngineDown
from outlast.core.model import Cancel
from outlast.engine import connect
from outlast.torture.check import (
    INVARIANTS,
    acknowledged_is_there,
    everything_ends,
    one_owner,
    stale_is_refused,
)
from outlast.torture.evidence import Call, Evidence, Execution, gather
from outlast.torture.load import BATCH, Spec, kind_of, spec
from outlast.torture.nemesis import FAULTS, Nemesis
from outlast.torture.place import fresh
from outlast.torture.record import Fault, Line, read, recorded
from outlast.torture.report import judge, story

LEASE = 2_000_000_000
SPEC = spec(1, 0)
TASK = SPEC.task.id


def seen(*calls: Call, executions: list[Execution] | None = None) -> Evidence:
    ran = {TASK: executions} if executions else {}
    return Evidence({TASK: SPEC}, LEASE, list(calls), ran, [])


def call(asked: Line, answer: Line | None) -> Call:
    return Call("history-test", asked, answer)


def enqueued(answer: Line | None) -> Call:
    return call(Line(call=1, phase="invoke", at=1, verb="enqueue", ids=(TASK,)), answer)


def claimed(worker: str, number: int, at: int) -> Call:
    asked = Line(call=number, phase="invoke", at=at, verb="exchange", worker=worker)
    leases = ((TASK, number, number),)
    return call(asked, Line(call=number, phase="ok", at=at + 1, verb="exchange", leases=leases))


def broken(findings: object) -> list[str]:
    return [told for _, told in findings if told is not None]  # type: ignore[attr-defined]


def test_an_acknowledged_task_that_is_not_there_is_lost() -> None:
    ok = Line(call=1, phase="ok", at=2, verb="enqueue", receipts=((TASK, False),))
    assert len(broken(acknowledged_is_there(seen(enqueued(ok))))) == 1


@pytest.mark.parametrize(
    "answer", [None, Line(call=1, phase="unknown", at=2), Line(call=1, phase="fail", at=2)]
)
def test_what_was_not_acknowledged_is_not_missed(answer: Line | None) -> None:
    assert broken(acknowledged_is_there(seen(enqueued(answer)))) == []


def test_a_write_accepted_after_the_next_owner_began_is_named() -> None:
    late = Line(
        call=9, phase="invoke", at=50, verb="exchange", worker="a",
        outcomes=((TASK, 1, "completed", "succeeded"),),
    )  # fmt: skip
    told = Line(call=9, phase="ok", at=51, verb="exchange")
    evidence = seen(claimed("a", 1, 10), claimed("b", 2, 30), call(late, told))
    assert broken(stale_is_refused(evidence)) == [
        "a write of attempt 1 was accepted after attempt 2 had begun"
    ]
    assert any("says: succeeded" in line for line in story(evidence, TASK))
    refused = Line(call=9, phase="ok", at=51, verb="exchange", lost=((TASK, 1),))
    evidence = seen(claimed("a", 1, 10), claimed("b", 2, 30), call(late, refused))
    assert broken(stale_is_refused(evidence)) == []
    assert len(evidence.stale) == 1


@pytest.mark.parametrize(
    ("before", "wrong"),
    [
        (None, 1),
        ((20, "pending", "unknown"), 0),  # applied then, for all we know: the turn went again
        ((20, "pending", None), 0),
        ((40, "pending", "unknown"), 1),  # the next owner had begun: stale both times
        ((20, "running", "unknown"), 1),  # something else was said
        ((20, "pending", "fail"), 1),  # refused: it was not applied
    ],
)
def test_a_write_whose_first_answer_was_lost_may_have_been_applied_then(
    before: tuple[int, str, str | None] | None, wrong: int
) -> None:
    def says(n: int, at: int, state: str, phase: str | None) -> Call:
        outcomes = ((TASK, 1, state, "failed"),)
        asked = Line(call=n, phase="invoke", at=at, verb="exchange", worker="a", outcomes=outcomes)
        answer = phase and Line(call=n, phase=phase, at=at + 1, verb="exchange")  # type: ignore[arg-type]
        return call(asked, answer or None)

    first = [] if before is None else [says(8, *before)]
    evidence = seen(claimed("a", 1, 10), *first, claimed("b", 2, 30), says(9, 50, "pending", "ok"))
    told = broken(stale_is_refused(evidence))
    assert told == wrong * ["a write of attempt 1 was accepted after attempt 2 had begun"]


@pytest.mark.parametrize(("faults", "least"), [(18, 1), (30, 7), (60, 21)])
def test_groups_are_paused_often_enough_for_stale_writes(
    tmp_path: Path, faults: int, least: int
) -> None:
    given: Any = {"fleet": None, "proxy": None, "server": None, "probe": None, "running": None}
    nemesis = Nemesis(folder=tmp_path, seed=1, lease_ms=2_000, **given)
    plan = nemesis.plan(faults, tuple(FAULTS))
    assert len(plan) == faults
    assert set(plan) == set(FAULTS)
    assert plan.count("pause group") >= least
    assert set(nemesis.plan(4, ["cut connections"])) == {"cut connections"}
    assert nemesis.plan(3, ["pause group"]) == ["pause group"] * 3
    assert sorted(nemesis.plan(2, ["pause group", "kill group", "kill worker"])) == [
        "kill group", "pause group",
    ]  # fmt: skip


@pytest.mark.parametrize(("second_at", "wrong"), [(LEASE - 5_000_000, 1), (LEASE + 20, 0)])
def test_two_copies_are_wrong_only_while_the_first_has_its_lease(
    second_at: int, wrong: int
) -> None:
    ran = [Execution(TASK, 1, 7, 12, 2 * LEASE, "end"), Execution(TASK, 2, 8, second_at)]
    calls = claimed("a", 1, 10), claimed("b", 2, second_at - 2)
    assert len(broken(one_owner(seen(*calls, executions=ran)))) == wrong


def test_a_run_in_which_nothing_happened_proves_nothing() -> None:
    evidence = seen()
    evidence.faults.append(Fault(kind="pause group", target="", seed=1, begin=1, end=2))
    report = judge(
        evidence, engine="", durability="", seed=1, seconds=1, wanted=["pause group", "black hole"]
    )
    assert all(verdict.holds for verdict in report.verdicts)
    assert len(report.verdicts) == len(INVARIANTS)
    assert not report.passed
    assert {"stale writes refused", "leases run out", "fault: black hole"} <= set(report.unseen)


async def test_what_only_the_end_of_its_worker_ended_was_stuck(tmp_path: Path) -> None:
    (tmp_path / "faults").touch()
    engine = connect("memory://")
    await engine.open()
    await engine.enqueue([SPEC.task])
    await engine.alter([TASK], Cancel("test"))
    for stuck, wrong in ((frozenset[str](), 0), (frozenset({TASK}), 1)):
        evidence = await gather(engine, tmp_path, {TASK: SPEC}, 1_000, (), stuck)
        assert len(broken(everything_ends(evidence))) == wrong
    await engine.close()


async def test_a_lost_answer_is_unknown(tmp_path: Path) -> None:
    engine = recorded("memory://", tmp_path, "test")
    await engine.open()
    (tmp_path / "lose-replies").touch()
    for n in range(20):
        try:
            await engine.enqueue([spec(1, BATCH * n).task])
        except EngineDown as lost:  # a third of them
            assert "lost on purpose" in str(lost)
    await engine.close()
    lines = read(tmp_path / f"history-test-{os.getpid()}", Line)
    assert {line.phase for line in lines} == {"invoke", "ok", "unknown"}


def test_the_load_is_a_function_of_the_seed() -> None:
    assert [spec(3, n) for n in range(50)] == [spec(3, n) for n in range(50)]
    assert spec(3, 1).task.id != spec(4, 1).task.id
    kinds = {kind_of(3, n) for n in range(1_500)}
    assert {"after", "deadly", "doomed", "unique", "limited", "delayed", "parent"} <= kinds
    ups = [spec(3, n - 1) for n in range(1, 1_500) if spec(3, n).kind == "after"]
    assert {up.kind for up in ups} <= {"short", "failing", "deadly"}
    assert isinstance(ups[0], Spec)


@pytest.mark.parametrize(
    ("url", "place"),
    [
        (
            "sqlite:////data/jobs.db?durability=memory",
            "sqlite:////data/jobs.db.t1?durability=memory",
        ),
        ("postgresql://me:pw@db/app?schema=mine", "postgresql://me:pw@db/app?schema=t1"),
        (
            "postgresql://db/app?namespace=mine&pool_size=5",
            "postgresql://db/app?pool_size=5&schema=t1",
        ),
        ("redis://:pw@cache:6380/2", "redis://:pw@cache:6380/2?namespace=t1"),
        ("mongodb://a,b/jobs?replicaSet=rs0", "mongodb://a,b/t1?replicaSet=rs0"),
    ],
)
def test_it_works_in_a_place_of_its_own(url: str, place: str) -> None:
    assert fresh(url, "t1").url == place


def test_what_processes_cannot_share_is_refused() -> None:
    with pytest.raises(BadInput, match="memory"):
        fresh("memory://x", "t1")


def test_a_proxy_stands_before_one_server_only() -> None:
    assert fresh("mongodb://a,b/jobs?replicaSet=rs0", "t1").server is None
    place = fresh("mongodb://u:p@db/jobs?replicaSet=rs0", "t1")
    assert place.server == ("db", 27017)
    assert place.through(99) == "mongodb://u:p@127.0.0.1:99/t1?directConnection=true"
    assert connect(fresh("redis://cache", "t1").through(99)) is not None
