"""Alter: every change in every state, one answer per id, and what is refused changes nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from outlast.core.model import (
    Cancel,
    Change,
    EditPayload,
    Forget,
    Redrive,
    Reprioritize,
    Reschedule,
    Resolve,
    Signal,
    Step,
)

from .language import Scene

STATES = ("ready", "scheduled", "retrying", "throttled", "deps", "signal", "running", "completed",
          "cancelled", "dead")  # fmt: skip


async def task_in(e: Scene, state: str) -> str:
    """A task in that state, by the shortest way."""
    name = state
    match state:
        case "ready":
            await e.add(name)
        case "scheduled":
            await e.add(name, delay="1h")
        case "throttled":
            await e.limit("k", slots=1)
            await e.add("holder", limits="k")
            await e.claim()
            await e.add(name, limits="k")
            assert await e.claims(9) == []
        case "deps":
            await e.add("upstream", delay="1d")
            await e.add(name, after="upstream")
        case "signal":
            await e.add(name, hold="go")
        case _:
            await e.add(name)
            [lease] = await e.claim()
            if state == "retrying":
                await e.fail(lease, "1h")
            elif state != "running":
                await e.hand(e.patch(lease, state, reason="why", error={"type": "T"}))
    return name


CHANGES: dict[str, tuple[Callable[[], Change], set[str]]] = {
    "cancel": (Cancel, set(STATES) - {"completed", "cancelled", "dead"}),
    "redrive": (Redrive, {"retrying", "cancelled", "dead"}),
    "reschedule": (lambda: Reschedule(delay_ms=60_000), {"ready", "scheduled", "retrying"}),
    "reprioritize": (lambda: Reprioritize(0), set(STATES[:6])),
    "edit": (lambda: EditPayload(b"[1]"), set(STATES) - {"running", "completed"}),
    "resolve": (lambda: Resolve(b"1"), {*STATES[:6], "dead"}),
    "signal": (lambda: Signal("x"), set(STATES) - {"completed", "cancelled", "dead"}),
    "forget": (Forget, set(STATES) - {"running"}),
}
"""Change -> the states it applies to; in the others it is refused."""


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("change", CHANGES)
async def test_every_change_in_every_state(e: Scene, change: str, state: str) -> None:
    name = await task_in(e, state)
    make, applies = CHANGES[change]
    met = (await e.task(name)).state
    if state in applies:
        altered = await e.alter(name, make())
        assert (altered.applied, altered.why, altered.state) == (True, None, met)
    else:
        assert await e.refuses(name, make()) == "state"


@pytest.mark.parametrize("change", CHANGES)
async def test_an_unknown_task_is_not_found(e: Scene, change: str) -> None:
    assert await e.refuses("nobody", CHANGES[change][0]()) == "not_found"


async def test_one_answer_per_id_in_order(e: Scene) -> None:
    await e.add("a", "b")
    [b] = [x for x in await e.claim(2) if e.name(x.id) == "b"]
    await e.finish(b)
    ids = [e.id("b"), e.id("nobody"), e.id("a")]
    answers = await e.engine.alter(ids, Cancel())
    assert [(x.id, x.applied, x.why) for x in answers] == [
        (ids[0], False, "state"), (ids[1], False, "not_found"), (ids[2], True, None),
    ]  # fmt: skip


async def test_no_ids_no_answers(e: Scene) -> None:
    assert await e.engine.alter([], Cancel()) == []


async def test_the_same_id_twice_meets_what_it_did_before(e: Scene) -> None:
    await e.add("a")
    answers = await e.engine.alter([e.id("a"), e.id("a")], Cancel())
    assert [x.applied for x in answers] == [True, False]


# redrive -----------------------------------------------------------------------------------------


async def test_redrive_keeps_the_history_and_gives_fresh_budgets(e: Scene) -> None:
    await e.add("a", max_attempts=2)
    for _ in range(2):
        [a] = await e.claim()
        await e.fail(a)
    [a] = await e.claim()
    await e.die(a, steps=[Step("s", b"1")])
    await e.redrive("a")
    task = await e.task("a")
    assert (task.status, task.attempt, task.losses, task.number) == ("ready", 0, 0, 3)
    assert (task.reason, task.completed_at, task.result) == (None, None, None)
    assert task.attempts.count(b'"number"') == 3
    [a] = await e.claim()
    assert (a.attempt, a.number, a.steps) == (1, 4, (Step("s", b"1"),))


async def test_redrive_later(e: Scene) -> None:
    await e.add("a")
    await e.cancel("a")
    await e.redrive("a", "1h")
    assert (await e.task("a")).parked == "time"
    assert await e.claims() == []
    await e.advance("1h")
    assert await e.claims() == ["a"]


async def test_redrive_with_another_payload(e: Scene) -> None:
    await e.add("a", payload=1, attrs=(("city", "Ulm"),))
    await e.cancel("a")
    await e.redrive("a", payload=b"2", attrs=(("city", "Bern"),))
    [a] = await e.claim()
    assert a.payload == b"2"
    assert await e.find(**{"attr.city": "Bern"}) == {"a"}
    assert await e.find(**{"attr.city": "Ulm"}) == set()


async def test_redriving_a_retrying_task_runs_it_now(e: Scene) -> None:
    await e.add("a", payload=1)
    [a] = await e.claim()
    await e.fail(a, "1h")
    await e.redrive("a", payload=b"2")
    [a] = await e.claim()
    assert (a.attempt, a.payload) == (2, b"2")


async def test_a_redriven_task_is_news(e: Scene) -> None:
    await e.add("a", followed=False)
    await e.cancel("a")
    await e.redrive("a")
    assert await e.log("a") == ["cancelled", "ready"]


async def test_a_redriven_task_meets_its_limits(e: Scene) -> None:
    await e.limit("k", slots=1)
    await e.add("a", "b", limits="k")
    [a] = await e.claim(1)
    await e.die(a)
    [b] = await e.claim(1)
    await e.redrive("a")
    assert await e.claims(9) == []
    await e.finish(b)
    assert await e.claims(9) == ["a"]


# the others --------------------------------------------------------------------------------------


async def test_reschedule_moves_the_moment(e: Scene) -> None:
    await e.add("a", delay="1h")
    await e.change("a", Reschedule(delay_ms=0))
    assert await e.claims() == ["a"]
    await e.add("b")
    at = await e.now() + 60_000
    await e.change("b", Reschedule(run_at=at))
    task = await e.task("b")
    assert (task.status, task.run_at) == ("scheduled", at)


async def test_reschedule_moves_max_age_along(e: Scene) -> None:
    await e.add("a", max_age="1h")
    await e.change("a", Reschedule(delay_ms=7_200_000))
    await e.advance("150m")
    await e.sweep()
    assert await e.status("a") == "ready"


async def test_reprioritize_a_waiter(e: Scene) -> None:
    await e.limit("k", slots=1)
    await e.add("a", "b", "c", limits="k")
    [a] = await e.claim(9)
    await e.change("c", Reprioritize(0))
    assert (await e.task("c")).priority == 0
    await e.finish(a)
    assert await e.claims(9) == ["c"]


async def test_edited_payloads_are_found_and_run(e: Scene) -> None:
    await e.add("a", payload=1, attrs=(("city", "Ulm"),))
    await e.change("a", EditPayload(b'"new"', (("city", "Bern"),)))
    assert await e.find(**{"attr.city": "Bern"}) == {"a"}
    assert await e.find(**{"attr.city": "Ulm"}) == set()
    [a] = await e.claim()
    assert a.payload == b'"new"'


async def test_resolve_completes_by_hand(e: Scene) -> None:
    await e.add("a", unique_key="k")
    await e.change("a", Resolve(b'{"by":"hand"}'))
    task = await e.task("a")
    assert (task.status, task.result, task.reason) == ("completed", b'{"by":"hand"}', "resolved")
    assert await e.claims() == []
    assert await e.log("a") == ["ready", "completed"]
    assert not (await e.add("b", unique_key="k"))[0].existing


async def test_forget_leaves_nothing(e: Scene) -> None:
    await e.add("a", tags=("t",), attrs=(("x", "y"),), unique_key="k")
    [a] = await e.claim()
    await e.finish(a, steps=[Step("s", b"1")])
    await e.forget("a")
    assert await e.found("a") is None
    assert await e.events("a") == []
    assert await e.find(tag="t") == set()
    [receipt] = await e.add("a")
    assert not receipt.existing
    [a] = await e.claim()
    assert (a.steps, a.inbox, a.number) == ((), (), 1)


async def test_forgetting_a_pending_task_tells_its_dependents(e: Scene) -> None:
    await e.batch(e.new("a", delay="1h"), e.new("b", after="a"), e.new("c", after="a", needs="any"))
    await e.forget("a")
    assert await e.statuses() == {"b": "cancelled", "c": "ready"}


async def test_a_change_counts_the_version(e: Scene) -> None:
    await e.add("a")
    before = (await e.task("a")).version
    await e.change("a", Reprioritize(1))
    assert (await e.task("a")).version > before
