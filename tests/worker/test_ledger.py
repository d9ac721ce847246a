"""The ledger: nothing is lost on the way to the engine, nothing is said twice in one batch."""

import asyncio

import pytest

from outlast.core.errors import LeaseLost
from outlast.core.model import NewEvent, Outcome
from outlast.worker.ledger import MAX_BATCH, MAX_BATCH_BYTES, MAX_CHUNKS, MAX_UNSENT, Ledger, news


def done(task: str, result: bytes = b"1") -> Outcome:
    return Outcome(id=task, fence=7, state="completed", result=result)


def ids(batch: tuple[Outcome, ...]) -> list[str]:
    return [outcome.id for outcome in batch]


@pytest.fixture
def rings() -> list[None]:
    return []


@pytest.fixture
def ledger(rings: list[None]) -> Ledger:
    return Ledger(lambda: rings.append(None))


def test_a_lone_outcome_rings_at_once_and_travels_alone(ledger: Ledger, rings: list[None]) -> None:
    ledger.enter(done("a"))
    assert len(rings) == 1
    assert ids(ledger.take()) == ["a"]
    ledger.stored_by(())
    assert not ledger.waiting
    assert len(ledger) == 0


def test_what_comes_while_a_turn_is_under_way_goes_with_the_next(ledger: Ledger) -> None:
    ledger.enter(done("a"))
    assert ids(ledger.take()) == ["a"]
    ledger.enter(done("b"))
    ledger.enter(done("c"))
    ledger.stored_by(())
    assert ids(ledger.take()) == ["b", "c"]


def test_news_and_the_outcome_that_follows_are_one_entry_in_order(ledger: Ledger) -> None:
    ledger.enter(news("a", 7, b'{"percent":1}', None))
    ledger.enter(news("a", 7, None, b'{"chunk":"x"}'))
    ledger.enter(news("a", 7, b'{"percent":2}', None))
    ledger.enter(news("a", 7, None, b'{"chunk":"y"}'))
    ledger.enter(done("a"))
    [entry] = ledger.take()
    assert (entry.state, entry.result, entry.progress) == ("completed", b"1", b'{"percent":2}')
    assert [(event.kind, event.data) for event in entry.events] == [
        ("chunk", b'{"chunk":"x"}'),
        ("chunk", b'{"chunk":"y"}'),
        ("progress", b'{"progress":{"percent":2}}'),
    ]


def test_a_batch_is_bounded_in_number_and_in_bytes(ledger: Ledger) -> None:
    for number in range(MAX_BATCH + 1):
        ledger.enter(done(f"{number}"))
    assert len(ledger.take()) == MAX_BATCH
    ledger.stored_by(())
    assert len(ledger.take()) == 1
    ledger.stored_by(())
    third = b"x" * (MAX_BATCH_BYTES // 3 + 1)
    for task in "abc":
        ledger.enter(done(task, third))
    assert ids(ledger.take()) == ["a", "b"]
    ledger.stored_by(())
    assert ids(ledger.take()) == ["c"]


def test_a_ledger_far_behind_is_full(ledger: Ledger) -> None:
    for number in range(MAX_UNSENT - 1):
        ledger.enter(done(f"{number}"))
    assert not ledger.full
    ledger.enter(done("last"))
    assert ledger.full
    ledger.take()
    assert ledger.full  # on its way is not stored
    ledger.stored_by(())
    assert not ledger.full


def test_an_attempt_that_streams_faster_than_the_engine_stores_is_crowded(ledger: Ledger) -> None:
    for _ in range(MAX_CHUNKS - 1):
        ledger.enter(news("a", 7, None, b"{}"))
    assert not ledger.crowded("a")
    ledger.enter(news("a", 7, None, b"{}"))
    assert ledger.crowded("a")
    assert not ledger.crowded("b")


async def test_a_report_is_done_when_the_turn_that_carried_it_is_stored(ledger: Ledger) -> None:
    first = asyncio.create_task(ledger.report(news("a", 7, None, b"{}")))
    await asyncio.sleep(0)
    ledger.take()
    second = asyncio.create_task(ledger.report(news("a", 7, None, b"{}")))
    await asyncio.sleep(0)
    assert not first.done()
    ledger.stored_by(())
    await first
    assert not second.done()
    ledger.take()
    ledger.stored_by(())
    await second


async def test_a_report_that_is_refused_raises_lease_lost(ledger: Ledger) -> None:
    lost = asyncio.create_task(ledger.report(news("a", 7, None, b"{}")))
    kept = asyncio.create_task(ledger.report(news("b", 7, None, b"{}")))
    await asyncio.sleep(0)
    ledger.take()
    ledger.stored_by([("a", 7)])
    with pytest.raises(LeaseLost):
        await lost
    await kept


def test_what_a_turn_of_unknown_fate_carried_goes_again_first(ledger: Ledger) -> None:
    ledger.enter(done("a"))
    ledger.take()
    ledger.enter(done("b"))
    ledger.keep()
    assert ids(ledger.take()) == ["a"]
    ledger.stored_by(())
    assert ids(ledger.take()) == ["b"]


def test_a_poisoned_batch_is_halved_until_the_one_to_blame_is_replaced(ledger: Ledger) -> None:
    for task in "abcde":
        ledger.enter(done(task))
    stored: list[Outcome] = []
    for _ in range(20):
        batch = ledger.take()
        if not batch:
            break
        if any(entry.id == "d" and entry.state == "completed" for entry in batch):
            ledger.refused_by("cannot store d")
            assert ledger.doubtful
        else:
            stored += batch
            ledger.stored_by(())
    assert not ledger.doubtful
    assert sorted(ids(tuple(stored))) == list("abcde")
    ends = {entry.id: entry for entry in stored}
    assert {ends[task].state for task in "abce"} == {"completed"}
    assert (ends["d"].state, ends["d"].reason) == ("dead", "unrecordable")
    assert b"cannot store d" in (ends["d"].error or b"")


def test_dropping_forgets_what_a_lost_attempt_had_to_say(ledger: Ledger) -> None:
    ledger.enter(Outcome(id="a", fence=7, events=(NewEvent(kind="chunk"),)))
    ledger.drop("a", 8)
    assert ledger.waiting
    ledger.drop("a", 7)
    assert not ledger.waiting
