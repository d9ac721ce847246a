"""`/metrics` and the history over HTTP: what they say, to whom, and that the pages about them and
the dashboard speak of the same."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest

from outlast import Outlast, metrics
from outlast.access import create_key
from outlast.core.model import Put
from outlast.core.totals import new_spread
from outlast.metrics import CONTENT_TYPE, FAMILIES
from outlast.worker import Worker

from .site import Site, make_app, serving, until

ROOT = Path(__file__).parent.parent.parent
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

SAMPLE = re.compile(r'(\w+)(?:\{((?:\w+="(?:[^"\\]|\\.)*",?)*)\})? (\S+)')


async def scrape(site: Site) -> dict[str, float]:
    """The samples by their full name; a name that comes twice is an error, as for Prometheus."""
    # One that is not older than the question: what was asked a moment ago is kept for a second.
    site.server.config.app.state.scraper._until = 0  # type: ignore[union-attr]
    reply = await site.http.get("/metrics")
    assert reply.status_code == 200, reply.text
    return parsed(reply.text)


def of(metric: str, type: str, **more: str) -> str:
    """The full name of what is counted of a type in the default queue."""
    labels = {"type": type, "queue": "default", **more}
    told = ",".join(f'{name}="{value}"' for name, value in labels.items())
    return f"outlast_{metric}{{{told}}}"


def parsed(text: str) -> dict[str, float]:
    found: dict[str, float] = {}
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("#"):
            assert re.fullmatch(r"# (HELP|TYPE) outlast_\w+ .+", line), line
            continue
        sample = SAMPLE.fullmatch(line)
        assert sample is not None, line
        name = line.rpartition(" ")[0]
        assert name not in found, line
        found[name] = float(sample[3])
    return found


async def test_tasks_attempts_and_times(busy: Site) -> None:
    for type, payload in (("add", {"a": 1}), ("tell", {"chunks": 1, "fails": 1}), ("doomed", {})):
        task = await busy.enqueue(type, payload)
        await busy.ended(task["id"])

    async def done() -> bool:
        seen = await scrape(busy)
        return of("tasks_finished_total", "doomed", state="dead") in seen

    await until(done)
    seen = await scrape(busy)
    assert seen["outlast_engine_up"] == 1
    assert seen["outlast_workers"] == 1
    assert seen["outlast_worker_slots"] == 200
    assert seen[of("tasks_enqueued_total", "add")] == 1
    assert seen[of("tasks_finished_total", "tell", state="completed")] == 1
    assert seen[of("tasks_finished_total", "doomed", state="dead")] == 1
    assert seen[of("attempts_total", "tell", outcome="failed")] == 1
    assert seen[of("attempts_total", "tell", outcome="succeeded")] == 1
    assert seen[of("tasks_retried_total", "tell")] == 1
    assert seen[of("queue_wait_seconds_count", "tell")] == 2
    assert seen[of("attempt_duration_seconds_bucket", "add", le="+Inf")] == 1
    assert seen['outlast_tasks{status="dead",type="doomed",queue="default"}'] == 1
    assert seen["outlast_stale_writes_refused_total"] == 0


async def test_queues_limits_and_users(site: Site) -> None:
    await site.enqueue("add", {"a": 1}, user_id="ada")
    await site.enqueue("add", {"a": 2}, user_id="ada", queue="bulk")
    await site.enqueue("add", {"a": 3}, user_id="bob")
    await site.post("/queues/bulk/pause")
    site.app.engine.skew_ms += 5_000
    seen = await scrape(site)
    assert seen['outlast_queue_depth{queue="default",lane="primary"}'] == 2
    assert seen['outlast_queue_depth{queue="bulk",lane="primary"}'] == 1
    assert seen['outlast_queue_oldest_seconds{queue="bulk"}'] >= 5
    assert seen['outlast_queue_paused{queue="bulk"}'] == 1
    assert (seen["outlast_users_active"], seen["outlast_user_tasks_max"]) == (2, 2)
    assert seen["outlast_workers"] == 0
    assert seen['outlast_tasks{status="ready",type="add",queue="default"}'] == 2


async def test_limits_are_told_by_their_definition() -> None:
    from outlast import Limit, Trip

    app = Outlast("memory://", limits=[Limit("user:*", slots=1, trip=Trip())])
    gate = asyncio.Event()

    @app.task(limits=["user:{user}"])
    async def held(user: str) -> None:
        await gate.wait()

    async with serving(app, working=True) as site:
        for user in ("ada", "ada", "bob"):
            await site.enqueue("held", {"user": user})

        async def full() -> bool:
            seen = await scrape(site)
            return (
                seen.get('outlast_limit_used{limit="user:*"}'),
                seen.get('outlast_limit_waiting{limit="user:*"}'),
            ) == (2, 1)

        await until(full)
        seen = await scrape(site)
        assert seen['outlast_limit_circuits{limit="user:*",circuit="closed"}'] == 2
        assert "ada" not in "".join(seen)
        gate.set()


async def test_requests_are_counted_by_template(site: Site) -> None:
    task = await site.enqueue("add", {"a": 1})
    await site.get(f"/tasks/{task['id']}")
    await site.get("/tasks/01890000-0000-7000-8000-000000000000")
    await site.get("/tasks/no-id/")
    await site.http.get("/nowhere/at/all")
    await site.http.request("BREW", "/pot")
    seen = await scrape(site)
    by = "outlast_http_requests_total{route=%s}"
    assert seen[by % '"/api/v1/tasks",method="POST",status="202"'] == 1
    assert seen[by % '"/api/v1/tasks/{task_id}",method="GET",status="200"'] == 1
    assert seen[by % '"/api/v1/tasks/{task_id}",method="GET",status="404"'] == 2
    assert seen[by % '"other",method="GET",status="404"'] == 1
    assert not [name for name in seen if "BREW" in name or "nowhere" in name]
    name = 'outlast_http_request_duration_seconds_count{route="/api/v1/tasks",method="POST"}'
    assert seen[name] == 1


async def test_open_streams_are_counted(site: Site) -> None:
    task = await site.enqueue("add", {"a": 1})
    async with site.stream(f"/tasks/{task['id']}/stream") as stream:
        await stream.next()
        assert (await scrape(site))["outlast_http_streams"] == 1
    await until(lambda: site.open_streams == 0)


async def test_notifications_are_counted(busy: Site) -> None:
    from websockets.asyncio.client import connect

    address = busy.address.replace("http", "ws") + "/api/v1/sessions/s/ws"
    async with connect(address, proxy=None) as socket:
        await busy.enqueue("add", {"a": 1}, session_id="s")
        notice = json.loads(await asyncio.wait_for(socket.recv(), 30))
        await socket.send(json.dumps({"ack": [notice["notification_id"]]}))
        await asyncio.wait_for(socket.recv(), 30)
    seen = await scrape(busy)
    assert seen["outlast_notifications_due_total"] == 1
    assert seen["outlast_notifications_pushed_total"] == 1
    assert seen["outlast_notifications_acknowledged_total"] == 1
    assert seen["outlast_notification_delay_seconds_count"] == 1


async def test_counts_of_another_process_are_in_it(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'tasks.db'}"
    server, _ = make_app(url)
    other, _ = make_app(url)
    async with serving(server) as site:
        async with other:
            await other.submit("add", {"a": 1})
            await Worker(other).drain()
        seen = await scrape(site)
    assert seen[of("tasks_enqueued_total", "add")] == 1
    assert seen[of("tasks_finished_total", "add", state="completed")] == 1


async def test_a_scrape_does_not_ask_the_engine_every_time(site: Site) -> None:
    first = await scrape(site)
    await site.enqueue("add", {"a": 1})
    second = parsed((await site.http.get("/metrics")).text)
    told = "outlast_tasks_enqueued_total"
    assert not [name for name in (*first, *second) if name.startswith(told)]
    assert [name for name in await scrape(site) if name.startswith(told)]


async def test_prometheus_is_told_what_it_gets(site: Site) -> None:
    reply = await site.http.get("/metrics")
    assert reply.headers["content-type"] == CONTENT_TYPE


async def test_with_keys_it_wants_one_that_may_look_at_everything(site: Site) -> None:
    key, _ = await create_key(site.app.engine, "client")
    narrow, _ = await create_key(site.app.engine, "client", queues=["default"])
    site.server.config.app.state.door.keyring._read_at = float("-inf")  # type: ignore[union-attr]

    async def status(text: str) -> int:
        headers = {"authorization": f"Bearer {text}"}
        return (await site.http.get("/metrics", headers=headers)).status_code

    assert [await status(text) for text in ("olk_wrong", narrow, key)] == [401, 403, 200]


async def test_an_engine_that_is_down_is_told(site: Site) -> None:
    await site.app.engine.close()
    try:
        reply = await site.http.get("/metrics")
        assert reply.status_code == 200
        assert parsed(reply.text)["outlast_engine_up"] == 0
        assert "outlast_tasks" not in reply.text
    finally:
        await site.app.engine.open()


# Text --------------------------------------------------------------------------------------------


def test_labels_are_escaped() -> None:
    told = metrics.text({"outlast_queue_paused": {('a"b\\c\nd',): 1}})
    assert 'outlast_queue_paused{queue="a\\"b\\\\c\\nd"} 1' in told


def test_a_histogram_is_cumulative() -> None:
    spread = new_spread()
    spread[0], spread[3], spread[-2], spread[-1] = 2, 1, 1, 9_000
    seen = parsed(metrics.text({"outlast_queue_wait_seconds": {("t", "q"): spread}}))
    by = 'outlast_queue_wait_seconds_bucket{type="t",queue="q",le="%s"}'
    assert [seen[by % le] for le in ("0.005", "0.025", "0.05", "7200", "+Inf")] == [2, 2, 3, 3, 4]
    assert seen['outlast_queue_wait_seconds_sum{type="t",queue="q"}'] == 9
    assert seen['outlast_queue_wait_seconds_count{type="t",queue="q"}'] == 4


def test_many_queues_are_summed_up() -> None:
    counts = [
        metrics.Count(("ready", "t", f"q{n:03}", "primary"), 2 if n else 1)
        for n in range(metrics.MAX_NAMES + 3)
    ]
    found = metrics._queues(counts, now=0)["outlast_queue_depth"]
    assert len(found) == metrics.MAX_NAMES + 1
    assert found["other", "primary"] == 5


# The dashboard and the pages ---------------------------------------------------------------------


def test_the_dashboard_shows_exactly_what_there_is() -> None:
    board = json.loads((ROOT / "docs/grafana/outlast.json").read_text())
    targets = [target for panel in board["panels"] for target in panel.get("targets", ())]
    shown = set(re.findall(r"\boutlast_\w+", " ".join(target["expr"] for target in targets)))
    families = {family.name: family for family in FAMILIES}
    for name in shown:
        base = name.removesuffix("_bucket")
        assert base in families, name
        assert (families[base].kind == "histogram") == (base != name), name
    assert {name.removesuffix("_bucket") for name in shown} == families.keys()


def test_the_dashboard_uses_labels_that_there_are() -> None:
    board = json.loads((ROOT / "docs/grafana/outlast.json").read_text())
    families = {family.name: {*family.labels, "le"} for family in FAMILIES}
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            used = re.findall(r"(outlast_\w+?)(?:_bucket)?\{([^}]*)\}", target["expr"])
            for name, matchers in used:
                assert set(re.findall(r"(\w+)[!=~]+\"", matchers)) <= families[name], target


async def test_every_family_is_exported(busy: Site) -> None:
    reply = await busy.http.get("/metrics")
    told = set(re.findall(r"# TYPE (\w+) ", reply.text))
    assert told == {family.name for family in FAMILIES}


def test_names_follow_the_conventions() -> None:
    for family in FAMILIES:
        assert family.name.endswith("_total") == (family.kind == "counter")
        assert family.kind != "histogram" or family.name.endswith("_seconds")
        assert family.help.endswith(".")


# History -----------------------------------------------------------------------------------------


async def test_the_history_over_http(busy: Site) -> None:
    for n in range(3):
        await busy.ended((await busy.enqueue("add", {"a": n}))["id"])

    async def rows() -> list[dict[str, object]]:
        found: list[dict[str, object]] = (await busy.get("/metrics/tasks?by=hour")).json()["items"]
        return found

    async def all_there() -> bool:
        return [row["completed"] for row in await rows()] == [3]

    await until(all_there)
    [row] = await rows()
    assert (row["type"], row["queue"], row["enqueued"]) == ("add", "default", 3)
    assert row["error_rate"] == 0
    assert row["run"]["p95"] is not None  # type: ignore[index]
    later = await busy.get("/metrics/tasks?from=2100-01-01T00:00:00Z")
    assert later.json() == {"items": [], "next": None}


@pytest.mark.parametrize("query", ["by=week", "from=yesterday", "to=2026-01-01", "since=1"])
async def test_a_history_that_cannot_be_is_refused(site: Site, query: str) -> None:
    reply = await site.get(f"/metrics/tasks?{query}")
    assert reply.status_code == 422
    assert reply.json()["field"] == query.partition("=")[0]


# Traces ------------------------------------------------------------------------------------------


async def test_a_trace_goes_on_behind_a_server_that_traces_nothing(site: Site) -> None:
    headers = {"traceparent": PARENT, "tracestate": "vendor=1"}
    body = {"type": "add", "payload": {"a": 1}}
    task = (await site.post("/tasks", body, headers=headers)).json()
    meta = json.loads((await site.app.handle(task["id"]).refresh()).meta)
    assert meta == headers
    plain = await site.enqueue("add", {"a": 1})
    assert (await site.app.handle(plain["id"]).refresh()).meta == b"{}"


async def test_a_traceparent_that_is_none_is_ignored(site: Site) -> None:
    body = {"type": "add", "payload": {"a": 1}}
    reply = await site.post("/tasks", body, headers={"traceparent": "00-nonsense"})
    assert (await site.app.handle(reply.json()["id"]).refresh()).meta == b"{}"


async def test_a_trace_goes_on_through_a_server_that_traces(
    busy: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    body = {"type": "add", "payload": {"a": 1}}
    await busy.post("/tasks", body, headers={"traceparent": PARENT})
    [send] = [span for span in exporter.get_finished_spans() if span.name == "send default"]
    assert f"{send.get_span_context().trace_id:032x}" == PARENT.split("-")[1]  # type: ignore[union-attr]


async def test_records_of_another_release_do_no_harm(site: Site) -> None:
    value = json.dumps({"counts": {"novelty\tx": 1, "attempts\tx": 2}, "spreads": {}}).encode()
    await site.app.engine.put([Put(kind="metrics", key="newer", value=value)])
    assert (await scrape(site))["outlast_engine_up"] == 1
