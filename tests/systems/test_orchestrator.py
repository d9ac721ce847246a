"""The orchestrator: structured definitions, agents that keep to their own, what is remembered."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from outlast import BadInput, Context, Outlast, Permanent, TaskDead
from outlast.access import create_key
from outlast.agents import AgentTools
from outlast.core.model import EventQuery, Task, TaskQuery
from outlast.handle import Handle
from outlast.stream import so_far
from outlast.systems.analytics import task_queue_metrics
from outlast.systems.llm import Model
from outlast.systems.memory import JOB, Memory
from outlast.systems.orchestrator import Orchestrator
from outlast.systems.standin import StandIn
from outlast.testing import testing
from outlast.worker import Worker
from tests.chaos.fleet import until
from tests.conformance.servers import cleared, url_for
from tests.http.site import Site, serving

from .garage import app, borrow, count, fails, meddle, reach, split, system, waits, waits_too

HERE = Path(__file__).parent


async def test_a_workflow_of_agents_tasks_from_their_definitions() -> None:
    async with testing(app) as t:
        async with system.workflow("onboarding", session_id="s-1") as flow:
            fit = flow.create_task(
                agent_name="FitmentAgent", task_type="generate_fitment",
                payload={"part": "brake disc"}, priority=0, max_attempts=3,
            )  # fmt: skip
            flow.create_task(
                agent_name="PricingAgent", task_type="refresh_price",
                payload={"fitment": fit.out, "times": 2}, name="price",
            )  # fmt: skip
        await t.run()
        told = await flow.handle.result(timeout=0)
        assert told == "brake disc for Mustang 1967 to 1973: 80 dollars"
        first = (await t.app.engine.tasks(TaskQuery.of(id=fit.id))).items[0]
        assert (first.priority, first.max_attempts, first.session_id) == (0, 3, "s-1")
        events = []
        async with aclosing(system.events(workflow_id=flow.id)) as news:
            async for event in news:
                events.append((event.agent_name, event.task_type, event.status))
                if event.agent_name == "PricingAgent" and event.status == "completed":
                    break
        assert events[-1] == ("PricingAgent", "refresh_price", "completed")
        assert events.index(("FitmentAgent", "generate_fitment", "completed")) < events.index(
            ("PricingAgent", "refresh_price", "running")
        )


async def test_what_no_definition_may_say() -> None:
    async with testing(app):
        with pytest.raises(BadInput, match="did you mean 'FitmentAgent'"):
            await system.create_task(agent_name="FitmentAgnt", task_type="split", payload={})
        with pytest.raises(BadInput, match="did you mean 'generate_fitment'"):
            await system.create_task(
                agent_name="FitmentAgent", task_type="generate_fitmen", payload={}
            )
        with pytest.raises(BadInput, match="part"):
            await system.create_task(
                agent_name="FitmentAgent", task_type="generate_fitment", payload={}
            )
    with pytest.raises(BadInput, match="letters"):
        system.agent("Fitment.Agent")


@pytest.mark.parametrize("way", ["enqueue", "create", "call", "prepared", "thread", "workflow"])
async def test_an_agent_makes_no_tasks_for_another(way: str) -> None:
    async with testing(app) as t:
        handle = await meddle.enqueue(way)
        await t.run()
        task = await t.task(handle)
        error = json.loads(task.error or b"{}")
        assert (task.status, task.attempt) == ("dead", 1)
        assert "FitmentAgent may not make or change a task of PricingAgent" in error["message"]
        made = await t.app.engine.tasks(TaskQuery.of(type="PricingAgent.refresh_price"))
        assert not made.items


@pytest.mark.parametrize("way", ["cancel", "signal", "retry", "rerun", "revive"])
async def test_an_agent_touches_no_task_of_another(way: str) -> None:
    async with testing(app) as t:
        theirs = await waits_too.enqueue()
        await t.run()
        if way in ("retry", "rerun", "revive"):
            await theirs.cancel()
        before = await t.task(theirs)
        handle = await reach.enqueue(way, theirs.id)
        await t.run()
        task = await t.task(handle)
        error = json.loads(task.error or b"{}")
        assert (task.status, task.attempt, error.get("code")) == ("dead", 1, "foreign_agent")
        assert "PricingAgent" in error["message"]
        after = await t.task(theirs)
        assert (after.status, after.version) == (before.status, before.version)
        made = await t.app.engine.tasks(TaskQuery.of(type="PricingAgent.waits_too"))
        assert [one.id for one in made.items] == [theirs.id]


@pytest.mark.parametrize("way", ["cancel", "retry"])
async def test_an_agent_does_not_touch_a_workflow_with_tasks_of_another(way: str) -> None:
    async with testing(app) as t:
        async with system.workflow("onboarding") as flow:
            flow.create_task(agent_name="PricingAgent", task_type="waits_too", payload={})
        await t.run()
        if way == "retry":
            await flow.handle.cancel()
        before = await t.status(flow.handle)
        handle = await reach.enqueue(way, flow.id)
        await t.run()
        error = json.loads((await t.task(handle)).error or b"{}")
        assert error.get("code") == "foreign_agent"
        assert await t.status(flow.handle) == before


@pytest.mark.parametrize("way", ["submit", "cancel", "signal", "retry", "rerun", "tool"])
async def test_an_agent_in_a_process_of_its_own_keeps_to_its_own(way: str, tmp_path: Path) -> None:
    """It knows of others only what their workers announce."""
    url = f"sqlite:///{tmp_path}/tasks.db"
    mine, theirs = Outlast(url), Outlast(url)
    fitting, costing = Orchestrator(mine), Orchestrator(theirs)

    @costing.agent("PricingAgent").task()
    async def price(ctx: Context) -> str:
        return str(await ctx.wait_for("go"))

    @fitting.agent("FitmentAgent").task()
    async def meddle(ctx: Context, task_id: str) -> object:
        other = mine.handle(task_id)
        if way == "submit":
            return (await mine.submit("PricingAgent.price", {})).id
        if way == "tool":
            told = await AgentTools(mine, "s-1").call("cancel_task_tool", {"task_id": task_id})
            raise Permanent(told["error"]["message"])
        await getattr(other, way)(*["go"] if way == "signal" else [])
        return None

    async with mine, theirs:
        workers = [Worker(mine), Worker(theirs)]
        running = [asyncio.create_task(worker.run()) for worker in workers]
        try:
            handle = await price.options(session_id="s-1").enqueue()
            await until(lambda: _has_status(handle, "blocked"), within_s=30)
            if way in ("retry", "rerun"):
                await handle.cancel()
            before = await handle.refresh()
            attempt = await meddle.enqueue(handle.id)
            with pytest.raises(TaskDead, match="may not make or change a task of PricingAgent"):
                await attempt.result(timeout="60s")
            assert [dead.id for dead in await fitting.dead()] == [attempt.id]
            after = await handle.refresh()
            assert (after.status, after.version) == (before.status, before.version)
            made = await theirs.engine.tasks(TaskQuery.of(type="PricingAgent.price"))
            assert [one.id for one in made.items] == [handle.id]
        finally:
            for worker in workers:
                worker.stop()
            await asyncio.gather(*running)


async def _has_status(handle: Handle[Any], status: str) -> bool:
    return await handle.status() == status


async def test_an_agent_that_calls_another_one_as_a_function_is_still_itself() -> None:
    async with testing(app) as t:
        handle = await borrow.enqueue()
        await t.run()
        error = json.loads((await t.task(handle)).error or b"{}")
        assert "FitmentAgent may not make or change a task of PricingAgent" in error["message"]


async def test_its_own_tasks_an_agent_may_touch() -> None:
    async with testing(app) as t:
        first, second = await waits.enqueue(), await waits.enqueue()
        await t.run()
        await reach.enqueue("signal", first.id)
        await reach.enqueue("cancel", second.id)
        await t.run()
        assert await first.result(timeout=0) == "from FitmentAgent"
        assert await t.status(second) == "cancelled"


async def test_its_own_tasks_an_agent_may_make() -> None:
    async with testing(app) as t:
        handle = await split.enqueue(["disc", "pad"])
        await t.run()
        assert [told["part"] for told in await handle.result(timeout=0)] == ["disc", "pad"]


async def test_failures_back_off_by_squares_and_the_dead_are_listed_and_revived() -> None:
    async with testing(app) as t:
        handle = await fails.enqueue()
        for wait_s in (5, 20):
            await t.run()
            task = await t.task(handle)
            assert task.run_at - task.updated_at == wait_s * 1_000
            await t.advance("20s")
        await t.run()
        [dead] = await system.dead("PricingAgent")
        assert (dead.id, dead.agent_name, dead.task_type) == (handle.id, "PricingAgent", "fails")
        assert (dead.payload, dead.attempts, dead.max_attempts) == ({}, 3, 3)
        assert dead.error_info is not None
        assert dead.error_info["message"] == "supplier list is empty"
        assert await system.dead("FitmentAgent") == []
        await system.revive(handle.id)
        assert await t.status(handle) == "ready"
        jobs = await t.app.engine.tasks(TaskQuery.of(type=JOB, status="completed"))
        assert not jobs.items  # what did not complete is not remembered


async def test_results_are_remembered_and_found_by_nearness() -> None:
    async with testing(app) as t:
        for part in ("brake disc", "fuel pump", "brake pad"):
            await system.create_task(
                agent_name="FitmentAgent", task_type="generate_fitment", payload={"part": part},
                workflow_id="01a1f0c0-0000-7000-8000-00000000000a" if part == "fuel pump" else None,
            )  # fmt: skip
        await t.run()
        near = await system.memory.nearest("a pump for fuel", n=2)
        assert "fuel pump" in near[0].text
        assert near[0].score > near[1].score
        assert near[0].type == "FitmentAgent.generate_fitment"
        # What is remembered later is found as well, without reading everything again.
        await system.create_task(
            agent_name="FitmentAgent", task_type="generate_fitment", payload={"part": "door lock"}
        )
        await t.run()
        [found] = await system.memory.nearest("lock of a door", n=1)
        assert "door lock" in found.text
        [only] = await system.memory.nearest(
            "door", n=5, workflow_id="01a1f0c0-0000-7000-8000-00000000000a"
        )
        assert "fuel pump" in only.text
        assert await system.memory.nearest("door", types=["PricingAgent.count"]) == []


async def test_what_another_database_remembers_is_not_found() -> None:
    for part in ("fuel pump", "fuel line"):
        async with testing(app) as t:
            handle = await system.create_task(
                agent_name="FitmentAgent", task_type="generate_fitment", payload={"part": part}
            )
            await t.run()
            assert [one.task_id for one in await system.memory.nearest("fuel pump")] == [handle.id]


async def test_a_model_embeds_and_is_asked_for_the_question_too() -> None:
    async with StandIn() as standin:
        mine = Outlast("memory://")
        garage = Orchestrator(mine, Memory(mine, Model("parrot", url=standin.url)))
        agent = garage.agent("NotesAgent")

        @agent.task()
        async def note(ctx: object, text: str) -> str:
            return text

        async with testing(mine) as t:
            for text in ("the oil is changed", "the tyres are worn"):
                await note.enqueue(text)
            await t.run()
            looking = asyncio.create_task(garage.memory.nearest("worn tyres", n=1))
            await until(lambda: _asked(mine), within_s=30)
            await t.run()
            [found] = await looking
            assert found.text == "the tyres are worn"
            assert {asked.path for asked in standin.asked} == {"/v1/embeddings"}


async def _asked(mine: Outlast) -> bool:
    return bool((await mine.engine.tasks(TaskQuery.of(type="memory.vector"))).items)


async def test_the_analyst_reads_the_metrics_of_the_day() -> None:
    async with testing(app) as t:
        for n in range(3):
            await count.enqueue(n)
        await fails.enqueue()
        await t.run()
        await t.app.publisher.publish(t.app.engine)
        rows = await task_queue_metrics(system)
        pricing = next(row for row in rows if row.agent_name == "PricingAgent")
        assert (pricing.tasks_created, pricing.tasks_completed) == (4, 3)
        assert pricing.error_rate == 0.25
        assert pricing.average_latency is not None
        handle = await system.create_task(
            agent_name="AnalyticsAgent", task_type="read_metrics", payload={}
        )
        await t.run()
        told = await handle.result(timeout=0)
        assert isinstance(told, list)
        assert {row.agent_name for row in told} >= {"PricingAgent"}
    assert app.schedules["AnalyticsAgent.read_metrics"].every == "0 6 * * *"


async def test_an_agent_in_another_language_is_handed_work_listed_and_remembered() -> None:
    mine = Outlast("memory://")
    garage = Orchestrator(mine)
    garage.agent("Gopher")
    mine.external("Gopher.dig", queue="gophers")
    async with serving(mine, working=True) as site:

        async def fetched() -> str:
            reply = await site.post("/leases", {"worker": "go", "queues": ["gophers"]})
            [item] = reply.json()["items"]
            return f"/leases/{item['lease']}"

        made = await garage.create_task(agent_name="Gopher", task_type="dig", payload={"deep": 1})
        body = {"type": JOB, "payload": {"task_id": made.id}, "after": [made.id]}
        job = (await site.post("/tasks", body)).json()
        await site.post(f"{await fetched()}/complete", {"result": "a hole in the meadow"})
        assert (await site.ended(job["id"]))["status"] == "completed"
        [found] = await garage.memory.nearest("hole", n=1)
        assert (found.task_id, found.text) == (made.id, "a hole in the meadow")
        other = await garage.create_task(
            agent_name="Gopher", task_type="dig", payload={}, max_attempts=1
        )
        await site.post(f"{await fetched()}/fail", {"error": {"type": "Rock", "message": "hard"}})
        [dead] = await garage.dead("Gopher")
        assert (dead.id, dead.agent_name, dead.task_type) == (other.id, "Gopher", "dig")
        assert dead.error_info is not None
        assert dead.error_info["message"] == "hard"


# On PostgreSQL, with several worker processes -----------------------------------------------------


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    yield url_for("postgresql", tmp_path)
    cleared("postgresql")


async def worker_on(url: str) -> asyncio.subprocess.Process:
    paths = [str(HERE.parent), str(HERE), str(HERE.parents[1])]
    command = [sys.executable, "-m", "outlast", "worker", "systems.garage:app", "--engine", url]
    return await asyncio.create_subprocess_exec(  # two, so that none takes all at once
        *command, "--concurrency", "2", env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    )


@pytest.mark.timeout(600)  # two cores that others use, too
async def test_the_design_over_http(url: str, tmp_path: Path) -> None:
    app.use(url)
    workers = [await worker_on(url)]
    async with serving(app) as site:
        try:
            key, _ = await create_key(app.engine, "admin")
            text, _ = await create_key(app.engine, "worker", types=["PricingAgent.waits_too"])
            site.http.headers["authorization"] = f"Bearer {key}"

            # What an agent did is remembered, asynchronously; what it may not do leaves nothing.
            fits = await site.enqueue("FitmentAgent.generate_fitment", {"part": "fuel pump"})
            assert (await site.ended(fits["id"]))["result"]["part"] == "fuel pump"
            foul = await site.enqueue("FitmentAgent.meddle", {"way": "create"})
            ended = await site.ended(foul["id"])
            assert (ended["status"], ended["attempt"]) == ("dead", 1)
            assert ended["error"]["code"] == "foreign_agent"
            made = (await site.get("/tasks?type=PricingAgent.refresh_price")).json()["items"]
            assert made == []
            theirs = await site.enqueue("PricingAgent.waits_too")
            for way in ("cancel", "signal"):
                payload = {"way": way, "task_id": theirs["id"]}
                reached = await site.enqueue("FitmentAgent.reach", payload)
                assert (await site.ended(reached["id"]))["error"]["code"] == "foreign_agent"
            assert (await site.task(theirs["id"]))["status"] == "blocked"

            # The dead, with all that the design names; revived by hand.
            dead = (await site.get("/queues/dlq")).json()["items"]
            assert {one["type"] for one in dead} == {"FitmentAgent.meddle", "FitmentAgent.reach"}
            [shown] = [one for one in dead if one["id"] == foul["id"]]
            assert (shown["payload"], shown["attempt"]) == ({"way": "create"}, 1)
            assert "PricingAgent" in shown["error"]["message"]
            assert (await site.post(f"/tasks/{foul['id']}/retry")).status_code == 200
            again = await site.ended(foul["id"])
            assert (again["status"], len(again["attempts"])) == ("dead", 2)

            # The analyst reads what the server and the worker have counted.
            await until(lambda: _reads(site, created=4, completed=1, failed=4), within_s=120)

            # A worker is killed at its task: another one ends it, and both are in the history.
            body = {"folder": str(tmp_path)}
            kept = await site.enqueue("FitmentAgent.measure", body, priority=0)
            pids = tmp_path / "pids"
            await until(lambda: pids.exists() and bool(pids.read_text()), within_s=120)
            workers[0].kill()  # and its children die with it
            workers.append(await worker_on(url))
            await until(lambda: len(pids.read_text().split()) >= 2, within_s=120)
            (tmp_path / "go").touch()
            ended = await site.ended(kept["id"])
            assert ended["result"] == "measured in attempt 1"  # what is lost costs no attempt
            assert ended["losses"] >= 1
            first, *_, last = ended["attempts"]
            assert (first["outcome"], last["outcome"]) == ("stalled", "succeeded")
            assert first["worker"] != last["worker"]
            await until(lambda: _is_remembered(fits["id"]), within_s=120)
            await until(lambda: _is_remembered(kept["id"]), within_s=120)
            [near] = await system.memory.nearest("a pump for fuel", n=1)
            assert near.task_id == fits["id"]

            # An agent in another language has a key that holds it to its own types.
            mine = {"authorization": f"Bearer {text}"}
            ask = {"worker": "other", "types": ["FitmentAgent.measure"]}
            assert (await site.post("/leases", ask, headers=mine)).status_code == 403
            body = {"type": "FitmentAgent.split", "payload": {"parts": []}}
            assert (await site.post("/tasks", body, headers=mine)).status_code == 403
            cancel = f"/tasks/{theirs['id']}/cancel"
            assert (await site.post(cancel, headers=mine)).status_code == 403
            assert (await site.post(cancel)).status_code == 200
        finally:
            for worker in workers:
                if worker.returncode is None:
                    worker.terminate()
                await worker.wait()


async def _reads(site: Site, **wanted: int) -> bool:
    read = await site.ended((await site.enqueue("AnalyticsAgent.read_metrics"))["id"])
    [fitment] = [row for row in read["result"] if row["agent_name"] == "FitmentAgent"] or [{}]
    return {name: fitment.get(f"tasks_{name}") for name in wanted} == wanted


async def _is_remembered(id: str) -> bool:
    query = TaskQuery.of(type=JOB, parent_id=id, status="completed")
    return len((await app.engine.tasks(query)).items) == 1


@pytest.mark.timeout(300)  # two cores that others use, too
async def test_two_workers_never_get_one_task(url: str) -> None:
    app.use(url)
    async with app:
        workers = [await worker_on(url) for _ in range(2)]
        try:
            await until(_both_alive, within_s=60)
            made = await app.enqueue([count.call(n) for n in range(400)])
            await until(_all_done, within_s=180)
        finally:
            for worker in workers:
                worker.terminate()
            for worker in workers:
                await worker.wait()
        tasks = await _stored({handle.id for handle in made})
        assert len(tasks) == 400
        assert all(len(json.loads(task.attempts)) == 1 for task in tasks)
        events = await so_far(app.engine, EventQuery(kinds=("chunk", "done")))
        ran = Counter(event.task_id for event in events if event.kind == "chunk")
        assert set(ran.values()) == {1}
        by = {json.loads(e.data)["chunk"] for e in events if e.kind == "chunk"}
        assert len(by) == 2, "one of the workers did nothing"


async def _both_alive() -> bool:
    return sum(worker.alive for worker in await app.engine.workers()) == 2


async def _all_done() -> bool:
    query = TaskQuery.of(type=("PricingAgent.count", JOB))
    return sum(c.n for c in await app.engine.count(query, by=("status",))
               if c.by[0] == "completed") == 800  # fmt: skip


async def _stored(ids: set[str]) -> list[Task]:
    page = await app.engine.tasks(TaskQuery.of(id=tuple(ids), limit=500))
    return list(page.items)
