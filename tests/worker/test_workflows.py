"""Workflows: graphs that enter whole, data that flows along their edges, and undoing."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Literal
from unittest.mock import AsyncMock

import pytest

from outlast import BadInput, Conflict, Outlast, Permanent, TaskDead, flows, saga
from outlast.core.errors import EngineDown
from outlast.core.ids import new_id
from outlast.core.model import NewTask, Receipt, TaskQuery
from outlast.handle import Handle
from outlast.testing import testing
from outlast.workflow import Workflow

ran: list[str] = []
broken: set[str] = set()


@pytest.fixture
def app() -> Outlast:
    ran.clear()
    broken.clear()
    app = Outlast("memory://")

    @app.task
    async def fetch(url: str) -> dict[str, object]:
        ran.append(f"fetch {url}")
        if url in broken:
            raise Permanent(f"{url} is broken")
        return {"url": url, "words": [f"{url}{n}" for n in range(3)], "size": len(url)}

    @app.task
    async def shout(text: str, mark: str = "!") -> str:
        ran.append(f"shout {text}")
        if text in broken:
            raise Permanent(f"{text} is broken")
        return text.upper() + mark

    @app.task
    async def join(parts: list[str | None]) -> str:
        ran.append("join")
        return "+".join(str(part) for part in parts)

    @app.task
    async def hush(text: str) -> None:
        ran.append(f"hush {text}")
        if f"hush {text}" in broken:
            raise Permanent("cannot hush")

    return app


@pytest.fixture
async def t(app: Outlast) -> AsyncIterator[testing]:
    async with testing(app) as t:
        yield t


async def status(app: Outlast, flow: Workflow) -> str:
    return (await saga.view(app, flow.id)).status


async def test_data_flows_along_the_edges(app: Outlast, t: testing) -> None:
    fetch, shout, join = (app.handlers[name] for name in ("fetch", "shout", "join"))
    async with app.workflow("ingest", session_id="s-1", priority="high") as flow:
        page = flow.add(fetch, "a")
        words = [flow.add(shout, page.out["words"][n], mark="?") for n in range(3)]
        flow.add(join, [word.out for word in words])
    assert await status(app, flow) == "running"
    await t.run()
    assert await flow.handle.result(timeout=0) == "A0?+A1?+A2?"
    assert ran[0] == "fetch a"
    assert ran[-1] == "join"
    view = await saga.view(app, flow.id)
    assert (view.name, view.status, view.counts) == ("ingest", "completed", {"completed": 5})
    assert view.percent == 100
    tasks = (await app.engine.tasks(TaskQuery.of(workflow_id=flow.id))).items
    assert {(task.session_id, task.priority) for task in tasks} == {("s-1", 1)}


async def test_a_chain_and_several_ends(app: Outlast, t: testing) -> None:
    shout = app.handlers["shout"]
    async with app.workflow("two ends") as flow:
        first = flow.add(shout, "a", name="first")
        flow.chain(first, shout, shout)
        flow.add(shout, "b", after=first, name="other")
    await t.run()
    assert await flow.handle.result(timeout=0) == {"shout 2": "A!!!", "other": "B!"}
    assert ran.index("shout a") < ran.index("shout b")


@pytest.mark.parametrize("needs", ["success", "any"])
async def test_a_group_and_what_takes_all_of_it(
    app: Outlast, t: testing, needs: Literal["success", "any"]
) -> None:
    fetch, shout, join = (app.handlers[name] for name in ("fetch", "shout", "join"))
    broken.update({"b"} if needs == "any" else set())
    async with app.workflow("chord") as flow:
        first = flow.add(fetch, "x")
        parts = flow.group(shout, "abc", after=first, mark=".")
        flow.chord(parts, join, needs=needs)
    await t.run()
    expected = "A.+None+C." if needs == "any" else "A.+B.+C."
    assert await flow.handle.result(timeout=0) == expected
    assert ran[0] == "fetch x"
    assert await status(app, flow) == "completed"


async def test_the_options_of_a_node_win_over_those_of_all(app: Outlast, t: testing) -> None:
    shout = app.handlers["shout"]
    async with app.workflow("mixed", priority="low", tags=["all"]) as flow:
        plain = flow.add(shout, "a")
        own = flow.add(shout.options(priority="critical"), "b")
    for node, priority in ((plain, 3), (own, 0)):
        task = await app.handle(node.id).refresh()
        assert (task.priority, task.tags) == (priority, ("all",))


async def test_the_same_graph_under_the_same_id_is_the_same_workflow(
    app: Outlast, t: testing
) -> None:
    shout, id = app.handlers["shout"], "01988b3c-0000-7000-8000-000000000001"
    for existing in (False, True):
        flow = app.workflow("once", id=id)
        flow.chain(flow.add(shout, "a"), shout)
        assert (await flow.enqueue()).existing is existing
        await t.run()
    assert ran == ["shout a", "shout A!"]


async def test_conditions_skip_and_what_hangs_on_them(app: Outlast, t: testing) -> None:
    fetch, shout = app.handlers["fetch"], app.handlers["shout"]
    async with app.workflow("branches") as flow:
        page = flow.add(fetch, "abc")
        small = flow.add(shout, "small", when=page.out["size"] <= 2)
        flow.add(shout, small.out, name="after small")
        flow.add(shout, "large", when=page.out["size"] > 2, name="large")
    await t.run()
    assert await flow.handle.result(timeout=0) == {"after small": None, "large": "LARGE!"}
    skipped = (await app.engine.tasks(TaskQuery.of(workflow_id=flow.id, reason="skipped"))).items
    assert [task.state for task in skipped] == ["cancelled"]
    assert await status(app, flow) == "completed"


async def test_needs_any_bears_a_failure(app: Outlast, t: testing) -> None:
    shout, join = app.handlers["shout"], app.handlers["join"]
    broken.add("b")
    async with app.workflow("lenient") as flow:
        parts = [flow.add(shout, text) for text in "abc"]
        flow.add(join, [part.out for part in parts], needs="any")
    await t.run()
    assert await flow.handle.result(timeout=0) == "A!+None+C!"
    assert await status(app, flow) == "completed"


async def test_each_of_a_map_has_the_options_chosen_for_it(app: Outlast, t: testing) -> None:
    """And what is Outlast's own stays where every worker finds it, and no other does."""
    fetch, shout = app.handlers["fetch"], app.handlers["shout"]
    flow = app.workflow("fan out", queue="bulk", tags=["night"], priority="low", max_age="1h")
    words = flow.add(fetch, "a").out["words"]
    flow.map(shout, words)
    chosen = shout.options(queue="vip", priority="high", timeout=timedelta(minutes=2), tags=["x"])
    flow.map(chosen, words, name="chosen")
    with pytest.raises(BadInput, match="hold: not for each task of a map"):
        flow.map(shout.options(hold="go"), words)
    await flow.enqueue()
    await t.run()
    assert await status(app, flow) == "completed"
    seen = Counter(
        (task.queue, task.tags, task.priority, task.max_age_ms, task.timeout_ms)
        for task in (await app.engine.tasks(TaskQuery.of(type="shout"))).items
    )
    assert seen == {
        ("bulk", ("night",), 3, 3_600_000, None): 3, ("vip", ("x",), 1, 3_600_000, 120_000): 3,
    }  # fmt: skip
    own = (await app.engine.tasks(TaskQuery.of(type=("outlast.map", "outlast.workflow")))).items
    assert {task.queue for task in own} == {"outlast"}


@pytest.mark.parametrize("needs", ["success", "any"])
async def test_map_over_a_result(app: Outlast, t: testing, needs: str) -> None:
    fetch, shout, join = (app.handlers[name] for name in ("fetch", "shout", "join"))
    broken.add("a1")
    async with app.workflow("fan out") as flow:
        page = flow.add(fetch, "a")
        mapped = flow.map(shout, page.out["words"], needs=needs, mark=".")  # type: ignore[arg-type]
        flow.add(join, mapped.out)
    await t.run()
    if needs == "any":
        assert await flow.handle.result(timeout=0) == "A0.+None+A2."
    else:
        with pytest.raises(TaskDead, match="a1 is broken"):
            await flow.handle.result(timeout=0)


async def test_a_failed_workflow_says_what_failed_and_can_go_on(app: Outlast, t: testing) -> None:
    shout = app.handlers["shout"]
    broken.add("A!")
    async with app.workflow("fails") as flow:
        flow.chain(flow.add(shout, "a"), shout, shout)
    await t.run()
    assert await status(app, flow) == "dead"
    with pytest.raises(TaskDead, match=r"'shout 2' died: Permanent: A! is broken"):
        await flow.handle.result(timeout=0)
    broken.clear()
    assert await saga.retry(app, flow.id) == 2
    await t.run()
    assert await flow.handle.result(timeout=0) == "A!!!"
    assert Counter(ran)["shout a"] == 1
    with pytest.raises(Conflict, match="it is completed"):
        await saga.retry(app, flow.id)


# undoing -----------------------------------------------------------------------------------------


def order(app: Outlast) -> Workflow:
    shout, hush = app.handlers["shout"], app.handlers["hush"]
    flow = app.workflow("order")
    first = flow.add(shout, "a", undo=hush)
    second = flow.add(shout, first.out, undo=hush)
    third = flow.add(shout, "c", after=second, undo=hush)
    flow.add(shout, "d", after=third, undo=hush)
    return flow


async def test_what_was_done_is_undone_in_reverse(app: Outlast, t: testing) -> None:
    broken.add("c")
    flow = order(app)
    await flow.enqueue()
    await t.run()
    # The third had started, so it counts; the fourth had not.
    assert ran == ["shout a", "shout A!", "shout c", "hush c", "hush A!", "hush a"]
    assert await status(app, flow) == "undone"
    with pytest.raises(TaskDead, match="3 done before it were undone"):
        await flow.handle.result(timeout=0)
    with pytest.raises(Conflict, match="undone"):
        await saga.retry(app, flow.id)


async def test_an_undo_that_fails_is_seen_and_redriven(app: Outlast, t: testing) -> None:
    broken.update({"c", "hush A!"})
    flow = order(app)
    await flow.enqueue()
    await t.run()
    assert await status(app, flow) == "undo_failed"
    broken.clear()
    await saga.retry(app, flow.id)
    await t.run()
    assert await status(app, flow) == "undone"
    assert ran[3:] == ["hush c", "hush A!", "hush A!", "hush a"]


async def test_a_cancelled_workflow_is_undone(app: Outlast, t: testing) -> None:
    shout, hush = app.handlers["shout"], app.handlers["hush"]
    async with app.workflow("held") as flow:
        first = flow.add(shout, "a", undo=hush)
        flow.add(shout.options(hold="go"), "b", after=first, undo=hush)
    await t.run()
    assert await saga.cancel(app, flow.id) == 1
    await t.run()
    assert ran == ["shout a", "hush a"]
    assert await status(app, flow) == "undone"
    with pytest.raises(Conflict, match="it is over"):
        await saga.cancel(app, flow.id)


async def test_a_workflow_with_nothing_to_undo_is_cancelled(app: Outlast, t: testing) -> None:
    shout = app.handlers["shout"]
    async with app.workflow("plain") as flow:
        flow.add(shout.options(delay="1h"), "a")
    assert await saga.cancel(app, flow.id) == 2
    await t.run()
    assert await status(app, flow) == "cancelled"


# refused -----------------------------------------------------------------------------------------


async def test_what_is_no_workflow(app: Outlast, t: testing) -> None:
    fetch, shout = app.handlers["fetch"], app.handlers["shout"]
    with pytest.raises(BadInput, match="has no tasks"):
        async with app.workflow("empty"):
            pass
    other = app.workflow("other").add(fetch, "a")

    @app.task
    async def takes_text(parts: str) -> None: ...

    for wrong, words in (
        (lambda flow: flow.add(shout, other.out), "not in this workflow"),
        (lambda flow: flow.add(shout, "a", wrong=1), "no argument 'wrong'"),
        (lambda flow: flow.add(shout, 5), "Expected str"),
        (lambda flow: flow.add(shout, "a", needs="some"), "give 'success' or 'any'"),
        (lambda flow: flow.add(shout, "a", undo=fetch), "undo: .* has no argument 'text'"),
        (lambda flow: flow.add(app.handlers["join"], [], undo=takes_text), "undo: .* Expected str"),
    ):
        with pytest.raises(BadInput, match=words):
            async with app.workflow("wrong") as flow:
                flow.add(fetch, "a")
                wrong(flow)
    assert not (await app.engine.tasks(TaskQuery())).items  # nothing was enqueued
    with pytest.raises(TypeError, match="use when="):
        bool(other.out)
    with pytest.raises(TypeError, match=r"use flow\.map"):
        list(other.out)  # type: ignore[call-overload]


async def test_a_large_graph_enters_whole(app: Outlast, t: testing) -> None:
    shout = app.handlers["shout"]
    flow = app.workflow("large")
    layers = [[flow.add(shout, "x") for _ in range(20)]]
    for _ in range(9):
        layers.append([flow.add(shout, "x", after=layers[-1]) for _ in range(20)])
    handle: Handle[object] = await flow.enqueue()
    await t.run()
    assert (await handle.refresh()).state == "completed"
    assert len(ran) == 200


@pytest.fixture
def in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs of more than two tasks are large."""
    monkeypatch.setattr("outlast.workflow.PIECE", 2)


@pytest.mark.usefixtures("in_pieces")
async def test_of_a_large_graph_that_is_refused_nothing_enters(app: Outlast, t: testing) -> None:
    shout = app.handlers["shout"]
    nobody = new_id()
    with pytest.raises(BadInput, match=f"does not exist: {nobody}"):
        async with app.workflow("behind nobody") as flow:
            flow.group(shout, "abcd")
            flow.add(shout.options(after=[nobody]), "e")
    with pytest.raises(BadInput, match="runs in a circle"):
        async with app.workflow("circle") as flow:
            flow.group(shout, "abcd")
            part = flow.nest("part")
            part.add(shout, flow.add(shout, part.out).out)
    assert not (await app.engine.tasks(TaskQuery())).items


@pytest.mark.usefixtures("in_pieces")
async def test_a_large_graph_that_entered_by_half_enters_whole_when_it_comes_again(
    app: Outlast, t: testing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever enqueued it had died, and what had entered was given up."""

    def graph() -> Workflow:
        flow = app.workflow("large", id=id)
        flow.chord(flow.group(app.handlers["shout"], "abcd"), app.handlers["join"])
        return flow

    async def breaks_off(tasks: Sequence[NewTask], *, within: object = None) -> list[Receipt]:
        if len((await app.engine.tasks(TaskQuery())).items) > 2:
            raise EngineDown("gone")
        return await enqueue(tasks)

    id, enqueue = new_id(), app.engine.enqueue
    with monkeypatch.context() as patched, pytest.raises(EngineDown):
        patched.setattr(app.engine, "enqueue", breaks_off)
        await graph().enqueue()
    await t.advance("11m")
    await t.run()
    assert ran == []
    counts = await app.engine.count(TaskQuery(), by=("status",))
    assert {count.by[0]: count.n for count in counts} == {"dead": 1, "cancelled": 2}
    handle = await graph().enqueue()
    await t.run()
    assert await handle.result(timeout=0) == "A!+B!+C!+D!"
    assert sorted(ran) == ["join", "shout a", "shout b", "shout c", "shout d"]


@pytest.mark.usefixtures("in_pieces")
async def test_a_large_graph_that_was_never_let_go_is_when_it_is_retried(
    app: Outlast, t: testing, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = app.workflow("large")
    flow.chord(flow.group(app.handlers["shout"], "abcd"), app.handlers["join"])
    with monkeypatch.context() as patched, pytest.raises(EngineDown):
        patched.setattr(app.engine, "alter", AsyncMock(side_effect=EngineDown("gone")))
        await flow.enqueue()
    await t.advance("11m")
    await t.run()
    assert (await status(app, flow), ran) == ("dead", [])
    await saga.retry(app, flow.id)
    await t.run()
    assert await flow.handle.result(timeout=0) == "A!+B!+C!+D!"


@pytest.mark.usefixtures("in_pieces")
async def test_a_large_graph_runs_again_from_a_node(app: Outlast, t: testing) -> None:
    """The tasks behind a node are found along its edges, which is not the order they enter in."""
    shout = app.handlers["shout"]
    async with app.workflow("braid") as flow:
        before = flow.add(shout, "x")
        first = flow.add(shout, before.out)
        one, two = flow.add(shout, first.out), flow.add(shout, first.out)
        for n in range(4):
            one = flow.add(shout, one.out, name=f"one {n}")
        flow.chord([one, two], app.handlers["join"], name="end")
    await t.run()
    result = await flow.handle.result(timeout=0)
    again = await flows.retry(app, flow.id, first.id)
    [begun] = (await app.engine.tasks(TaskQuery.of(workflow_id=again, type="outlast.gate"))).items
    assert begun.id in (await app.engine.tasks(TaskQuery.of(workflow_id=again))).items[-2].after
    ran.clear()
    await t.run()
    assert await app.handle(again).result(timeout=0) == result
    assert len(ran) == 8


async def test_a_circle_through_a_part_is_refused(app: Outlast, t: testing) -> None:
    with pytest.raises(BadInput, match="runs in a circle"):
        async with app.workflow("circle") as flow:
            part = flow.nest("part")
            part.add(app.handlers["shout"], flow.add(app.handlers["shout"], part.out).out)
    assert not (await app.engine.tasks(TaskQuery())).items


async def test_a_map_runs_again_with_what_comes_before_it(app: Outlast, t: testing) -> None:
    fetch, shout, join = (app.handlers[name] for name in ("fetch", "shout", "join"))
    async with app.workflow("fan out") as flow:
        first = flow.add(fetch, "z")
        page = flow.add(fetch, "a", after=first)
        mapped = flow.map(shout, page.out["words"], name="each")
        flow.add(join, mapped.out)
    await t.run()
    ran.clear()
    for node, runs in (("each", ["join", "shout a0", "shout a1", "shout a2"]), ("join", ["join"])):
        again = await flows.retry(app, flow.id, node)
        await t.run()
        assert await app.handle(again).result(timeout=0) == "A0!+A1!+A2!"
        assert sorted(ran) == runs
        ran.clear()
    again = await flows.retry(app, flow.id, first.id)
    await t.run()
    assert ran[:2] == ["fetch z", "fetch a"]
