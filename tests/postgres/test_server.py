"""What only this engine has to bear: locks, snapshots, pools, servers that die."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import asyncpg
import msgspec
import pytest
from msgspec import structs

from outlast.core.errors import BadInput, EngineDown, UnknownEngine
from outlast.core.ids import new_fence, new_id
from outlast.core.limits import Limit
from outlast.core.model import (
    Deal,
    EventQuery,
    NewTask,
    Outcome,
    Put,
    TaskQuery,
    Turn,
    Want,
    WorkerInfo,
)
from outlast.core.states import Lane
from outlast.engines.postgres import db, exchange, read
from outlast.engines.postgres.db import encode, in_schema, settings_of
from outlast.engines.postgres.engine import PostgresEngine, connect
from outlast.engines.postgres.enqueue import FEW_KINDS
from outlast.engines.postgres.exchange import Marks, Rest
from outlast.engines.postgres.wake import payload

INFO = WorkerInfo(host="test", pid=1)
DOCS = Path(__file__).parent.parent.parent / "docs" / "engines" / "postgres.md"


def task(**options: Any) -> NewTask:
    return NewTask(id=new_id(), type="work", **options)


async def turn(engine: PostgresEngine, worker: str, room: int, *outcomes: Outcome) -> Deal:
    wants = (Want("default", "primary", room), Want("default", "retry", room))
    return await engine.exchange(
        Turn(token=new_fence(), worker=worker, wants=wants, room=room, outcomes=outcomes, info=INFO)
    )


async def drain(engine: PostgresEngine, worker: str, room: int = 20) -> int:
    """Claim and finish until nothing is left; how many."""
    done = 0
    outcomes: list[Outcome] = []
    while True:
        deal = await turn(engine, worker, room, *outcomes)
        assert not deal.lost
        outcomes = [Outcome(id=x.id, fence=x.fence, state="completed") for x in deal.leases]
        done += len(outcomes)
        if not outcomes and not deal.again and not await living(engine):
            return done


async def living(engine: PostgresEngine) -> int:
    counts = await engine.count(TaskQuery.of(status=("ready", "throttled", "running")))
    return sum(count.n for count in counts)


# the schema --------------------------------------------------------------------------------------


async def test_engines_that_start_together_make_one_schema(url: str, opened: Any) -> None:
    engines = await asyncio.gather(*[opened(url) for _ in range(4)])
    assert {await engine.migrate() for engine in engines} == {1}


async def test_workers_go_on_while_the_next_release_migrates(
    engine: PostgresEngine, url: str, opened: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await engine.enqueue([task() for _ in range(1_500)])
    workers = [asyncio.create_task(drain(await opened(url), name)) for name in ("a", "b")]
    async with asyncio.timeout(30):
        while await living(engine) > 1_400:
            pass
    step = tmp_path / "step.sql"
    step.write_text("""alter table outlast.task add later text;
        create index task_later on outlast.task (later) where later is not null;""")
    monkeypatch.setattr(db, "STEPS", (*db.STEPS, str(step)))
    assert await engine.migrate() == len(db.STEPS) == 2
    assert await living(engine)
    assert sum(await asyncio.gather(*workers)) == 1_500
    events = await engine._value("select count(*) from outlast.log")
    assert events == 3 * 1_500


async def test_a_newer_schema_is_refused(engine: PostgresEngine, url: str) -> None:
    async with engine.transaction() as conn:
        await conn.execute(f"set local search_path = {engine._settings.schema}")
        await conn.execute("update meta set value = '99' where name = 'schema'")
    with pytest.raises(EngineDown, match="newer than this release"):
        await connect(url).open()


@pytest.mark.parametrize("name", ["x-y", "X", "1a", 'a"; drop', "a" * 64])
def test_a_schema_is_a_plain_name(name: str) -> None:
    with pytest.raises(UnknownEngine, match="schema"):
        connect(f"postgresql://localhost/db?schema={name}")


async def test_the_rights_of_the_page_are_enough(
    engine: PostgresEngine, url: str, opened: Any
) -> None:
    [grants] = re.findall(r"^```sql\n(create role .*?)^```$", DOCS.read_text(), re.M | re.S)
    schema, role = engine._settings.schema, f"app_{engine._settings.schema}"
    text = grants.replace("outlast_app", role).replace("schema outlast", f"schema {schema}")
    async with engine.transaction() as conn:
        await conn.execute(text)
    app = await opened(url.replace("outlast@", f"{role}@"))
    await app.enqueue([task(unique_key="k", limits=(("k", 1),), fair_key="f") for _ in range(3)])
    assert await drain(app, "w") == 1
    await app.sweep()
    assert len((await app.events(EventQuery())).items) == 3


# hints -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lanes", "room", "told"),
    [(("primary", "retry"), 3, False), (("primary", "retry"), 2, True), (("primary",), 3, True)],
)
async def test_a_turn_that_took_all_that_it_made_ready_tells_nobody_to_look(
    engine: PostgresEngine, lanes: tuple[Lane, ...], room: int, told: bool
) -> None:
    up = task()
    await engine.enqueue([up, task(after=(up.id,)), task(after=(up.id,))])
    [lease] = (await turn(engine, "w", 1)).leases
    again = Turn(
        token=new_fence(),
        worker="w",
        wants=tuple(Want("default", lane, room) for lane in lanes),
        room=room,
        outcomes=(Outcome(id=lease.id, fence=lease.fence, state="completed"),),
        info=INFO,
    )
    rows = await engine._rows(exchange.EXCHANGE, *exchange.arguments(again, 0, engine._marks))
    deal, topics = exchange.deal(again, rows, engine._marks)
    assert len(deal.leases) == 2
    assert ("queue:default" in topics) == told


# errors ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "cure"),
    [
        ("postgresql://outlast@127.0.0.1:1/postgres", "Is it running"),
        ("{user}/nowhere", "does not exist"),
    ],
)
async def test_what_is_wrong_is_said_with_the_cure(server: Any, address: str, cure: str) -> None:
    user = server.url.rpartition("/")[0]
    with pytest.raises(EngineDown, match=cure) as told:
        await connect(address.format(user=user)).open()
    assert "outlast@" not in str(told.value)


@pytest.mark.parametrize(
    ("address", "cure"),
    [
        ("postgresql://u:p[w@host/db", "%5B"),
        ("postgresql://[::1/db", "is no address"),
        ("postgresql://u:secret@host:abc/db", "port that is a number"),
        ("postgresql://u:secret@one:5432,two:99999/db", "port that is a number"),
        ("postgresql://host/db?listen_url=postgresql%3A%2F%2Fu%3Asecret%40host%3Aabc%2Fdb", "port"),
        ("postgresql://host/db?listen_url=http%3A%2F%2Fhost", "no address of PostgreSQL"),
        ("postgresql://host/db?schema=pg_jobs", "not pg_"),
        (f"postgresql://host/db?schema={'a' * 56}", "55 at most"),
        ("postgresql://host/db?pool_size=many", "numbers"),
    ],
)
def test_an_address_that_cannot_be_used_is_said_at_once(address: str, cure: str) -> None:
    with pytest.raises(UnknownEngine, match=cure) as told:
        connect(address)
    assert "secret" not in str(told.value)


def test_a_password_in_listen_url_is_taken_as_it_was_written() -> None:
    direct = "postgresql://u:a%2Fb%40c@host:5432/db"
    assert (
        settings_of(f"postgresql://pooler/db?listen_url={quote(direct, safe='')}").listen == direct
    )


async def test_the_longest_schema_works(server: Any, opened: Any) -> None:
    here, there = [await opened(f"{server.url}?schema={'a' * 55}") for _ in range(2)]
    async with there.watch(["queue:default"]) as watch:
        async with here.transaction() as conn:
            await here.enqueue([task()], within=conn)
        assert await watch.wait(30)


async def test_of_several_hosts_one_that_is_there_is_taken(server: Any, opened: Any) -> None:
    address = f"postgresql://outlast@127.0.0.1:1,127.0.0.1:{server.port}/postgres"
    engine = await opened(
        f"{address}?schema=t{new_id().replace('-', '')}&target_session_attrs=primary"
    )
    await engine.enqueue([task()])
    assert await drain(engine, "w") == 1


async def test_a_server_whose_transactions_see_nothing_new_is_refused_with_the_cure(
    own_server: Callable[..., Any], opened: Any
) -> None:
    server = own_server(default_transaction_isolation="repeatable read")
    with pytest.raises(EngineDown, match="repeatable read") as told:
        await opened(server.url)
    [cure] = re.findall(r"default_transaction_isolation=\S+", str(told.value))
    engine = await opened(f"{server.url}?{cure}")
    await engine.enqueue([task()])
    assert await drain(engine, "w") == 1


@pytest.mark.parametrize("text", ["a\0b", "lone \ud800"])
async def test_text_that_cannot_be_stored_is_bad_input(engine: PostgresEngine, text: str) -> None:
    for bad in (task(session_id=text), task(tags=(text,)), task(unique_key=text)):
        with pytest.raises(BadInput):
            await engine.enqueue([bad])
    assert await living(engine) == 0


async def test_a_closed_engine_says_so(url: str) -> None:
    with pytest.raises(EngineDown, match="not open"):
        await connect(url).enqueue([task()])


@pytest.mark.parametrize(
    ("settings", "durability"),
    [({"fsync": "on"}, "fsync"), ({"fsync": "on", "synchronous_commit": "off"}, "memory")],
)
async def test_durability_is_read_from_the_server(
    own_server: Callable[..., Any], opened: Any, settings: dict[str, str], durability: str
) -> None:
    engine = await opened(own_server(**settings).url)
    assert engine.durability == durability


async def test_a_transaction_whose_connection_is_cut_says_what_an_engine_says(
    engine: PostgresEngine,
) -> None:
    with pytest.raises(EngineDown):  # in which words depends on when the cut is seen
        async with engine.transaction() as conn:
            await engine.enqueue([task()], within=conn)
            await engine._value("select pg_terminate_backend($1)", conn.get_server_pid())
    with pytest.raises(ZeroDivisionError):
        async with engine.transaction() as conn:
            await engine._value("select pg_terminate_backend($1)", conn.get_server_pid())
            _ = 1 / 0
    assert await living(engine) == 0


async def test_a_killed_server_loses_nothing_and_is_found_again(
    own_server: Callable[..., Any], opened: Any
) -> None:
    server = own_server(fsync="on")
    engine = await opened(server.url)
    tasks = [task() for _ in range(50)]
    await engine.enqueue(tasks)
    async with engine.watch(["queue:default"]) as watch:
        server.kill()
        with pytest.raises(EngineDown):
            await engine.enqueue([task()])
        server.run()
        assert await watch.wait(30), "whoever was deaf is told to look"
    assert await drain(engine, "w") == 50
    assert (await engine.tasks(TaskQuery.of(status="completed", limit=100))).next is None


# the log -----------------------------------------------------------------------------------------


async def test_a_slow_writer_is_not_overtaken_in_the_log(engine: PostgresEngine) -> None:
    """A sequence alone would lose what the slow one drew first and committed last."""
    slow, fast = task(), task()
    async with engine.transaction() as conn:
        await engine.enqueue([slow], within=conn)
        await engine.enqueue([fast])
        page = await engine.events(EventQuery())
        assert page.items == ()
        # The log of one task does not wait for anybody.
        assert len((await engine.events(EventQuery(task_id=fast.id))).items) == 1
    page = await engine.events(EventQuery(after=page.next))
    assert [event.task_id for event in page.items] == [slow.id, fast.id]


async def test_who_begins_to_write_meanwhile_hides_no_slow_writer(engine: PostgresEngine) -> None:
    begins = """select pg_advisory_xact_lock_shared(
      ('outlast.event'::regclass::oid::bigint - 2147483648)::integer,
      ((last_value + 1000 & 4294967295) - 2147483648)::integer) from outlast.event_seq_seq"""
    async with engine.transaction() as slow:
        await engine.enqueue([task()], within=slow)
        await engine.enqueue([task()])
        async with engine.transaction() as ahead:  # as one that begins after the end was read
            await ahead.execute(in_schema(begins, engine._settings.schema))
            assert (await engine.events(EventQuery())).items == ()
    assert len((await engine.events(EventQuery())).items) == 2


async def test_strangers_do_not_hold_the_log_up(engine: PostgresEngine, server: Any) -> None:
    stranger = await asyncpg.connect(server.url)
    try:
        async with stranger.transaction():
            await stranger.execute("create table if not exists strange (x integer)")
            await engine.enqueue([task()])
            assert len((await engine.events(EventQuery())).items) == 1
    finally:
        await stranger.close()


# locks and plans ---------------------------------------------------------------------------------


async def test_two_loops_on_many_limits_do_not_deadlock(engine: PostgresEngine) -> None:
    value = encode(Limit("k:*", slots=3).to_json())
    await engine.put([Put(kind="limit", key="k:*", value=value)])
    keys = [f"k:{n}" for n in range(20)]
    await engine.enqueue(
        [task(limits=((keys[n % 20], 1), (keys[(n * 7 + 3) % 20], 1))) for n in range(400)]
    )
    done = await asyncio.gather(*[drain(engine, f"w{n}") for n in range(4)])
    assert sum(done) == 400
    assert {gauge.used for gauge in await engine.gauges(keys)} == {0}
    deadlocks = "select deadlocks from pg_stat_database where datname = current_database()"
    assert await engine._value(deadlocks) == 0


async def test_an_upstream_set_that_ends_everywhere_at_once(engine: PostgresEngine) -> None:
    ups = [task() for _ in range(8)]
    downs = [task(after=tuple(up.id for up in ups)) for _ in range(5)]
    await engine.enqueue([*ups, *downs])
    deals = await asyncio.gather(*[turn(engine, f"w{n}", 1) for n in range(8)])
    leases = [(n, lease) for n, deal in enumerate(deals) for lease in deal.leases]
    assert len(leases) == 8
    await asyncio.gather(
        *[
            turn(engine, f"w{n}", 0, Outcome(id=x.id, fence=x.fence, state="completed"))
            for n, x in leases
        ]
    )
    # Without a sweep: nobody may have been left for later.
    assert len((await turn(engine, "w", 9)).leases) == 5


async def test_statistics_of_an_idle_moment_ruin_no_plan(engine: PostgresEngine) -> None:
    """After an ANALYZE while nothing ran the planner must not walk all running tasks."""
    await engine.enqueue([task() for _ in range(3_000)])
    async with engine.transaction() as conn:
        await conn.execute(f"analyze {engine._settings.schema}.task")
    assert await drain(engine, "w", 250) == 3_000
    async with engine.transaction() as conn:
        read = await conn.fetchval(
            "select seq_tup_read from pg_stat_user_tables where schemaname = $1 and "
            "relname = 'task'",
            engine._settings.schema,
        )
    assert read < 3_000 * 20


async def test_tasks_by_id_are_looked_up_also_by_a_plan_of_when_there_were_few(
    engine: PostgresEngine,
) -> None:
    """A plan is kept until the next ANALYZE, which may come after 100,000 more tasks."""
    schema = engine._settings.schema
    looked_at = (
        "select sum(seq_tup_read + coalesce(idx_tup_fetch, 0)) from pg_stat_xact_user_tables"
    )
    up = task()
    down = task(after=(up.id,))
    wanted = TaskQuery.of(id=(up.id, down.id), limit=50)
    await engine.enqueue([up, down])
    async with engine.transaction() as conn:
        for table in ("task", "edge", "worker"):
            await conn.execute(f"analyze {schema}.{table}")
    async with engine.transaction() as conn:

        async def looking() -> int:
            before = await conn.fetchval(looked_at)
            found = await read.tasks(conn, wanted, 0, schema)
            assert [(one.id, one.after) for one in found.items] == [
                (down.id, (up.id,)),
                (up.id, ()),
            ]
            return int(await conn.fetchval(looked_at) - before)

        few = [await looking() for _ in range(10)][-1]
        many = [task() for _ in range(2_000)]
        await engine.enqueue([*many, *(task(after=(one.id,)) for one in many)])
        assert await looking() == few


async def test_marks_are_given_up_where_nothing_is_behind_them(engine: PostgresEngine) -> None:
    await engine.enqueue([task() for _ in range(3)])
    await turn(engine, "w", 1)
    engine._marks._marks = {"default\x1fprimary": (9, 0, new_id())}
    engine._marks._until = float("inf")
    deal = await turn(engine, "w", 5)
    assert (deal.leases, deal.again) == ((), True)
    assert len((await turn(engine, "w", 5)).leases) == 2


async def test_a_held_snapshot_makes_no_claim_look_at_all_the_dead(
    engine: PostgresEngine, server: Any
) -> None:
    await engine.enqueue([task(followed=False) for _ in range(8_000)])
    holder = await asyncpg.connect(server.url)
    try:
        async with holder.transaction(isolation="repeatable_read"):
            await holder.fetchval("select 1")
            outcomes: list[Outcome] = []
            passed = []
            for _ in range(30):
                deal = await turn(engine, "w", 250, *outcomes)
                outcomes = [Outcome(id=x.id, fence=x.fence, state="completed") for x in deal.leases]
                passed.append(engine._marks.current() is not None)
            assert any(passed), "nothing was dead"
            assert await engine._value("select count(*) from outlast.task where number > 1") == 0
            await turn(engine, "w", 0, *outcomes)
            await drain(engine, "w", 250)
            assert await living(engine) == 0
    finally:
        await holder.close()


def test_marks_serve_for_a_while_after_a_slow_look() -> None:
    marks = Marks()
    rest = Rest(
        0, False, False, False, [], [], None, None, None, {"q": (2, 7, "x")}, 10**9, untold=False
    )
    marks.learn(rest)
    assert marks.current() == '{"q":[2,7,"x"]}'
    marks.learn(structs.replace(rest, passed=0, marks={"q": (2, 8, "y")}))
    assert marks.current() == '{"q":[2,8,"y"]}'
    marks._until = 0
    assert marks.current() is None


# connections -------------------------------------------------------------------------------------


async def test_without_prepared_statements_and_without_listening(url: str, opened: Any) -> None:
    """What is left behind PgBouncer in transaction mode."""
    here = await opened(f"{url}&statement_cache_size=0&listen=off")
    there = await opened(f"{url}&statement_cache_size=0&listen=off")
    async with there.watch(["queue:default"]) as watch:
        while await watch.wait(0.2):
            pass
        await here.enqueue([task() for _ in range(10)])
        assert await watch.wait(30)
    assert await drain(there, "w") == 10


async def test_hints_reach_other_processes(url: str, opened: Any) -> None:
    here, there = await opened(url), await opened(url)
    async with there.watch(["queue:default"]) as watch, there.watch(["queue:other"]) as other:
        await here.enqueue([task()])
        assert await watch.wait(30)
        assert not await other.wait(0.05)


async def test_a_listener_that_was_cut_off_listens_again(url: str, opened: Any) -> None:
    here, there = await opened(url), await opened(url)
    async with there.watch(["queue:default"]) as watch:
        await here._rows(
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where query like 'LISTEN%' and pid <> pg_backend_pid()"
        )
        assert await watch.wait(30), "it may have missed something"
        await here.enqueue([task()])
        assert await watch.wait(30)


def test_a_notification_names_what_fits() -> None:
    assert payload("me", {"queue:a"}) == '["me","queue:a"]'
    tasks = {f"task:{new_id()}" for _ in range(250)}
    assert set(msgspec.json.decode(payload("me", tasks | {"log"}))) == {"me", "log", "task:*"}
    assert payload("me", {"queue:" + "x" * 9_000}) == '["me","*"]'


async def test_a_flood_of_tasks_wakes_nobody_else(url: str, opened: Any) -> None:
    here, there = await opened(url), await opened(url)
    one = task()
    watched = [f"task:{one.id}"], ["queue:other"]
    async with there.watch(watched[0]) as watch, there.watch(watched[1]) as other:
        await here.enqueue([one, *(task() for _ in range(500))])
        assert await watch.wait(30)
        assert not await other.wait(0.05)


async def test_callers_that_come_together_travel_together(engine: PostgresEngine) -> None:
    before = await engine._value("select last_value from outlast.event_seq_seq")
    receipts = await asyncio.gather(*[engine.enqueue([task()]) for _ in range(100)])
    assert len({receipt.id for [receipt] in receipts}) == 100
    after = await engine._value("select last_value from outlast.event_seq_seq")
    assert after - before in (99, 100)
    commits = await engine._value("select count(distinct xmin::text) from outlast.task")
    assert commits == 1


@pytest.mark.parametrize("kinds", [1, FEW_KINDS, FEW_KINDS + 1])
async def test_batches_of_few_and_of_many_kinds_are_stored_alike(
    engine: PostgresEngine, kinds: int
) -> None:
    new = [task(queue=f"q{n % kinds}", meta=b'{"n":%d}' % n) for n in range(3 * FEW_KINDS)]
    assert not any(receipt.existing for receipt in await engine.enqueue(new))
    stored = (await engine.tasks(TaskQuery(limit=len(new)))).items[::-1]
    assert [(t.id, t.queue, t.meta) for t in stored] == [(t.id, t.queue, t.meta) for t in new]
    again = await engine.enqueue([*new[:2], task()])
    assert [receipt.existing for receipt in again] == [True, True, False]
