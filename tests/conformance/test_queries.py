"""Queries: every field, alternatives, negation, comparison; pages that stay put; counts."""

from __future__ import annotations

import pytest

from outlast.core.errors import BadInput
from outlast.core.model import QUERY_FIELDS, TaskQuery, Term

from .language import Scene


async def populate(e: Scene) -> None:
    """Eight tasks that differ in everything that can be asked for."""
    await e.limit("k", slots=1)
    await e.add("up", type="alpha", queue="q1", priority=0, limits="k", session_id="s1")
    await e.claim(1, "w1", queue="q1", lease="1d")
    await e.add("throttled", type="beta", queue="q1", limits=["k"], user_id="u1", priority=1)
    await e.claim(9, "w1", queue="q1", lease="1d")
    await e.add(
        "scheduled", type="beta", delay="1h", tags=("red", "blue"), parent="up", unique_key="uk"
    )
    await e.add("blocked", type="gamma", after="up", workflow_id="wf", attrs=(("city", "Bern"),))
    await e.add("failing", type="gamma", queue="q2", attrs=(("city", "Ulm"), ("n", "7")))
    [failing] = await e.claim(1, "w2", queue="q2", lease="1d")
    await e.fail(failing, "1h", fingerprint="fp")
    await e.add(
        "dead", type="delta", queue="q2", payload={"a": {"b": "deep"}, "n": 5}, tags=("red",)
    )
    [dead] = await e.claim(1, "w2", queue="q2", lease="1d")
    await e.advance("10s")
    await e.die(dead, "permanent", fingerprint="fp2")
    await e.add("done", type="delta", queue="q2", payload={"text": "Hello World"}, user_id="u1")
    [done] = await e.claim(1, "w2", queue="q2", lease="1d")
    await e.advance("10s")
    await e.finish(done)
    await e.add("ready", type="alpha", tags=("blue",), session_id="s1")


ALL = {"up", "throttled", "scheduled", "blocked", "failing", "dead", "done", "ready"}


async def test_every_field_finds(e: Scene) -> None:
    await populate(e)
    times = {name: await e.task(name) for name in ALL}
    cases: dict[str, tuple[tuple[str | int, ...], set[str]]] = {
        "id": ((e.id("dead"), e.id("done")), {"dead", "done"}),
        "status": (("retrying", "blocked"), {"failing", "blocked"}),
        "type": (("beta",), {"throttled", "scheduled"}),
        "queue": (("q1",), {"up", "throttled"}),
        "lane": (("retry",), {"failing"}),
        "priority": ((0, 1), {"up", "throttled"}),
        "session_id": (("s1",), {"up", "ready"}),
        "user_id": (("u1",), {"throttled", "done"}),
        "tag": (("blue",), {"scheduled", "ready"}),
        "workflow_id": (("wf",), {"blocked"}),
        "parent_id": ((e.id("up"),), {"scheduled"}),
        "unique_key": (("uk",), {"scheduled"}),
        "worker": (("w1",), {"up"}),
        "limit": (("k",), {"up", "throttled"}),
        "fingerprint": (("fp", "fp2"), {"failing", "dead"}),
        "reason": (("permanent",), {"dead"}),
        "parked": (("deps",), {"blocked"}),
        "created_at": ((times["ready"].created_at,), {"ready"}),
        "completed_at": ((times["done"].completed_at or 0,), {"done"}),
        "ahead_of": ((e.id("ready"),), set()),
        "text": (("World",), {"done"}),
    }
    assert cases.keys() == QUERY_FIELDS
    for field, (values, expected) in cases.items():
        assert await e.find(Term(field, values)) == expected, field


@pytest.mark.parametrize("status", ["ready", "scheduled", "retrying", "throttled", "blocked",
                                    "running", "completed", "dead"])  # fmt: skip
async def test_every_status_finds_its_own(e: Scene, status: str) -> None:
    await populate(e)
    names = {"retrying": "failing", "running": "up", "completed": "done"}
    assert await e.find(status=status) == {names.get(status, status)}
    assert await e.find(Term("status", (status,), negated=True)) == ALL - {
        names.get(status, status)
    }


async def test_stalled_and_cancelled(e: Scene) -> None:
    await e.add("a", "b")
    await e.claim(1)
    await e.cancel("b")
    await e.advance("11s")
    assert await e.find(status="stalled") == {"a"}
    assert await e.find(status="running") == set()
    assert await e.find(status="cancelled") == {"b"}


async def test_attributes(e: Scene) -> None:
    await populate(e)
    assert await e.find(Term("attr.city", ("Bern",))) == {"blocked"}
    assert await e.find(Term("attr.city", ("Bern", "Ulm"))) == {"blocked", "failing"}
    assert await e.find(Term("attr.n", ("7",))) == {"failing"}
    assert await e.find(Term("attr.n", ("Bern",))) == set()
    assert await e.find(Term("attr.city", ("Bern",), negated=True)) == ALL - {"blocked"}


async def test_paths_into_the_payload(e: Scene) -> None:
    await populate(e)
    assert await e.find(Term("payload.a.b", ("deep",))) == {"dead"}
    assert await e.find(Term("payload.n", (5,))) == {"dead"}
    assert await e.find(Term("payload.nothing", ("x",))) == set()


async def test_odd_paths_and_payloads(e: Scene) -> None:
    await e.add("list", payload=[1, 2])
    await e.add("text", payload="x")
    await e.add("odd", payload={"a b": "x", "with'quote": "y"})
    for path in ("a", "a.b.c", "with'quote", "$", "a[0]"):
        assert await e.find(Term(f"payload.{path}", ("x",))) == set()
    for path in ('"', "", "a."):
        with pytest.raises(BadInput):
            await e.find(Term(f"payload.{path}", ("x",)))


async def test_values_in_a_payload_are_found_as_they_are_written(e: Scene) -> None:
    await e.add("a", payload={
        "yes": True, "no": False, "nil": None, "n": 1, "big": 12345678901234567890,
        "name": "zürich", "list": [{"sku": "x"}, 7], "deep": {"er": {"est": 1}},
    })  # fmt: skip
    await e.add("b", payload=b'{"n" : 1.0 , "0": "zero", "name": "z\\u00fcrich"}')
    for path, value, found in (
        ("yes", "true", {"a"}), ("yes", "1", set()), ("no", "false", {"a"}), ("nil", "null", set()),
        ("n", "1", {"a"}), ("n", "1.0", {"b"}), ("big", "12345678901234567890", {"a"}),
        ("list.0.sku", "x", {"a"}), ("list.1", "7", {"a"}), ("list.-1", "7", {"a"}),
        ("list.2", "7", set()), ("list.sku", "x", set()), ("0", "zero", {"b"}),
        ("name", "zürich", {"a", "b"}), ("deep.er", '{"est":1}', {"a"}), ("deep", "er", set()),
    ):  # fmt: skip
        term = Term(f"payload.{path}", (value,))
        assert await e.find(term) == found, (path, value)
        others = Term(term.field, term.values, negated=True)
        assert await e.find(others) == {"a", "b"} - found, (path, value)


async def test_texts_are_found_however_a_client_has_written_them(e: Scene) -> None:
    await e.add("plain", payload=(
        '{"city":"zürich a/b","x":"he said \\"hi\\", back\\\\slash 🎉 100%"}'.encode()
    ))  # fmt: skip
    await e.add("escaped", payload=(
        b'{"city": "z\\u00fcrich a\\/b", "x": "He said \\"hi\\", back\\\\slash \\ud83c\\udf89"}'
    ))  # fmt: skip
    both = {"plain", "escaped"}
    for text, found in (
        ("zürich", both), ("ürich a/b", both), ('said "hi"', both), ("back\\slash", both),
        ("SAID", both), ("ZÜRICH", set()), ("🎉", both), ('"city"', both), ("100%", {"plain"}),
        ("_", set()),
    ):  # fmt: skip
        assert await e.find(text=text) == found, text
        assert await e.find(Term("text", (text,), negated=True)) == both - found, text


async def test_terms_all_hold(e: Scene) -> None:
    await populate(e)
    assert await e.find(type="gamma", status="blocked") == {"blocked"}
    assert await e.find(Term("tag", ("red",)), Term("tag", ("blue",))) == {"scheduled"}
    assert await e.find(type="alpha", queue="q2") == set()


@pytest.mark.parametrize(
    ("field", "value"),
    [("type", "beta"), ("queue", "q1"), ("tag", "red"), ("session_id", "s1"), ("worker", "w1"),
     ("limit", "k"), ("user_id", "u1"), ("reason", "permanent"), ("priority", 1)],
)  # fmt: skip
async def test_negation_is_the_complement(e: Scene, field: str, value: str | int) -> None:
    await populate(e)
    found = await e.find(Term(field, (value,)))
    assert found
    assert await e.find(Term(field, (value,), negated=True)) == ALL - found


async def test_earlier_and_later(e: Scene) -> None:
    await populate(e)
    dead = await e.task("dead")
    at = dead.completed_at
    assert at is not None
    assert await e.find(Term("completed_at", (at,), op=">")) == {"done"}
    assert await e.find(Term("completed_at", (at + 1,), op="<")) == {"dead"}
    assert await e.find(Term("created_at", (dead.created_at,), op=">")) == {"done", "ready"}
    assert await e.find(Term("priority", (2,), op="<")) == {"up", "throttled"}


async def test_ahead_of_is_who_will_be_claimed_before(e: Scene) -> None:
    await e.add("a", "b")
    await e.add("low", priority=3)
    await e.add("urgent", priority=0)
    await e.add("elsewhere", queue="other")
    await e.add("retry", lane="retry")
    await e.add("parked", delay="1h")
    assert await e.find(Term("ahead_of", (e.id("b"),))) == {"urgent", "a"}
    assert await e.find(Term("ahead_of", (e.id("low"),))) == {"urgent", "a", "b"}
    assert await e.find(Term("ahead_of", (e.id("urgent"),))) == set()
    assert await e.find(Term("ahead_of", (e.id("nobody"),))) == set()


async def test_newest_first(e: Scene) -> None:
    await e.add("a")
    await e.add("b", "c")
    assert e.names(await e.tasks()) == ["c", "b", "a"]


async def test_pages_stay_put_while_tasks_are_added(e: Scene) -> None:
    await e.add(*[f"t{n}" for n in range(10)])
    first = await e.engine.tasks(TaskQuery(limit=4))
    assert e.names(first.items) == ["t9", "t8", "t7", "t6"]
    await e.add("new1", "new2")
    second = await e.engine.tasks(TaskQuery(limit=4, cursor=first.next))
    assert e.names(second.items) == ["t5", "t4", "t3", "t2"]
    await e.forget("t1")
    third = await e.engine.tasks(TaskQuery(limit=4, cursor=second.next))
    assert e.names(third.items) == ["t0"]
    assert third.next is None


async def test_pages_of_a_filtered_query(e: Scene) -> None:
    for n in range(20):
        await e.add(f"t{n}", type="even" if n % 2 == 0 else "odd")
    pages = await e.pages(TaskQuery.of(type="even", limit=3))
    names = [e.name(t.id) for page in pages for t in page.items]
    assert names == [f"t{n}" for n in range(18, -1, -2)]
    assert all(len(page.items) <= 3 for page in pages)


async def test_an_unindexed_query_gets_to_the_end(e: Scene) -> None:
    await e.add("needle", payload={"x": "needle"})
    await e.add(*[f"t{n}" for n in range(300)], followed=False)
    assert await e.find(text="needle") == {"needle"}


async def test_an_unknown_field_is_bad_input(e: Scene) -> None:
    for term in (Term("color", ("red",)), Term("status", ("happy",)), Term("payload", ("x",))):
        with pytest.raises(BadInput):
            await e.engine.tasks(TaskQuery(terms=(term,)))
    with pytest.raises(BadInput):
        await e.engine.tasks(TaskQuery(cursor="nonsense!"))
    with pytest.raises(BadInput):
        await e.engine.count(TaskQuery(), ["payload"])


async def test_nothing_can_be_smuggled_in(e: Scene) -> None:
    await e.add("a")
    evil = "x' or 1=1 --"
    for field in sorted(QUERY_FIELDS - {"status", "created_at", "completed_at", "priority"}):
        assert await e.find(Term(field, (evil,))) == set(), field
    with pytest.raises(BadInput):
        await e.find(Term("id or 1=1 or id", ("x",)))


async def test_counts_by_columns(e: Scene) -> None:
    await populate(e)
    assert await e.counts("status") == {
        "ready": 1, "scheduled": 1, "retrying": 1, "throttled": 1, "blocked": 1, "running": 1,
        "completed": 1, "dead": 1,
    }  # fmt: skip
    assert await e.counts("type") == {"alpha": 2, "beta": 2, "gamma": 2, "delta": 2}
    assert await e.counts("queue", type="delta") == {"q2": 2}
    both = await e.engine.count(TaskQuery(), ["queue", "lane"])
    assert {c.by: c.n for c in both} == {
        ("q1", "primary"): 2, ("q2", "primary"): 2, ("q2", "retry"): 1, ("default", "primary"): 3,
    }  # fmt: skip
    assert await e.counts("fingerprint", status=("dead", "retrying")) == {"fp": 1, "fp2": 1}


async def test_counting_everything(e: Scene) -> None:
    assert sum(count.n for count in await e.engine.count(TaskQuery())) == 0
    await e.add("a", "b")
    [count] = await e.engine.count(TaskQuery())
    assert (count.by, count.n) == ((), 2)


async def test_a_count_tells_the_oldest_age(e: Scene) -> None:
    await e.add("a")
    await e.advance("1m")
    await e.add("b")
    [count] = await e.engine.count(TaskQuery.of(status="ready"), ["queue"])
    assert count.oldest_at == (await e.task("a")).run_at
