"""Steps: remembered once, fenced like an outcome, given back with every later lease."""

from __future__ import annotations

from outlast.core.model import NewEvent, Step

from .language import Scene, body


async def test_steps_come_back_with_later_leases_in_order(e: Scene) -> None:
    await e.add("a")
    [a] = await e.claim()
    await e.report(a, steps=[Step("fetch", b'"page"')])
    await e.report(a, steps=[Step("ask", b"1"), Step("b", b"2")])
    await e.fail(a, steps=[Step("last", b"3")])
    [a] = await e.claim()
    assert a.steps == (
        Step("fetch", b'"page"'), Step("ask", b"1"), Step("b", b"2"), Step("last", b"3"),
    )  # fmt: skip


async def test_a_step_is_written_once(e: Scene) -> None:
    await e.add("a")
    [a] = await e.claim()
    await e.report(a, steps=[Step("s", b"1")])
    await e.report(a, steps=[Step("s", b"2")])
    await e.fail(a)
    [a] = await e.claim()
    assert a.steps == (Step("s", b"1"),)


async def test_a_stale_step_is_refused(e: Scene) -> None:
    await e.add("a")
    [old] = await e.claim(1, "w1")
    await e.report(old, steps=[Step("s", b"1")])
    await e.vanish("w1")
    await e.refused(old, "running", steps=[Step("t", b"2")])
    await e.advance("1m")
    [new] = await e.claim(1, "w2")
    assert new.steps == (Step("s", b"1"),)


async def test_steps_survive_losses_releases_and_redrives(e: Scene) -> None:
    await e.add("a")
    [a] = await e.claim()
    await e.report(a, steps=[Step("s", b"1")])
    await e.release(a)
    [a] = await e.claim()
    await e.vanish()
    await e.advance("1m")
    [a] = await e.claim(1, "w2")
    assert a.steps == (Step("s", b"1"),)
    await e.die(a)
    await e.redrive("a")
    [a] = await e.claim(1, "w2")
    assert a.steps == (Step("s", b"1"),)


async def test_steps_outlast_the_log(e: Scene) -> None:
    """The log only announces them: pruning it cannot make a step run again."""
    await e.add("a")
    [a] = await e.claim()
    await e.report(a, steps=[Step("s", b"1")])
    await e.fail(a, "1h")
    await e.put("retention", "log", {"age_ms": 60_000})
    await e.advance("1h")
    await e.sweep()
    [a] = await e.claim(1, "w2")
    assert a.steps == (Step("s", b"1"),)


async def test_steps_of_one_task_are_not_another_ones(e: Scene) -> None:
    await e.add("a", "b")
    [a, b] = await e.claim(2)
    await e.report(a, steps=[Step("s", b"1")])
    await e.fail(b)
    [b] = await e.claim()
    assert b.steps == ()


async def test_a_repeated_turn_gives_the_steps_too(e: Scene) -> None:
    await e.add("a")
    [a] = await e.claim()
    await e.fail(a, steps=[Step("s", b"1")])
    first = await e.turn(n=1, token=77)
    again = await e.turn(n=1, token=77)
    assert first.leases == again.leases
    assert again.leases[0].steps == (Step("s", b"1"),)


async def test_a_report_keeps_the_lease(e: Scene) -> None:
    await e.add("a")
    [a] = await e.claim()
    for n in range(3):
        await e.report(
            a,
            progress={"percent": n},
            events=[NewEvent(kind="chunk", data=body(n), task_id=a.id)],
        )
    task = await e.task("a")
    assert (task.status, task.attempt, task.progress) == ("running", 1, b'{"percent":2}')
    await e.finish(a)
    assert [x.data for x in await e.events("a") if x.kind == "chunk"] == [b"0", b"1", b"2"]


async def test_steps_and_progress_are_news(e: Scene) -> None:
    await e.add("a")
    [a] = await e.claim()
    await e.report(a, steps=[Step("s", b"1")], progress={"percent": 10})
    kinds = [x.kind for x in await e.events("a")]
    assert sorted(kinds[2:]) == ["progress", "step"]
    step = next(x for x in await e.events("a") if x.kind == "step")
    assert b'"s"' in step.data
    assert step.attempt == 1


async def test_a_step_of_a_finished_attempt_is_kept(e: Scene) -> None:
    await e.add("a")
    [a] = await e.claim()
    await e.die(a, steps=[Step("s", b"1")])
    await e.redrive("a")
    [a] = await e.claim()
    assert a.steps == (Step("s", b"1"),)
