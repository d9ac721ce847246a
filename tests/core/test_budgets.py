"""Caps and budgets: what a span is, what a key is, what is charged."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.core.budgets import Budget, budgets_of, charges_for, is_budget, limit_key
from outlast.core.errors import BadInput
from outlast.core.limits import Cap, Gauge, Limit, admit, are_stale, span_at, spend, used_of
from outlast.core.model import Charge, NewTask
from outlast.core.usage import Sum, Usage, read_usage, usage_of

MOMENTS = st.datetimes(datetime(1970, 1, 1), datetime(2400, 1, 1))  # UTC below


def ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


@given(MOMENTS)
def test_months_are_those_of_the_calendar(naive: datetime) -> None:
    at = naive.replace(tzinfo=UTC)
    first = datetime(at.year, at.month, 1, tzinfo=UTC)
    after = datetime(at.year + at.month // 12, at.month % 12 + 1, 1, tzinfo=UTC)
    assert span_at(Cap(1, "month"), int(at.timestamp() * 1000)) == (ms(first), ms(after))


@given(MOMENTS, st.lists(st.integers(-1, 60), max_size=8))
def test_a_cap_lets_pass_exactly_while_something_is_left(naive: datetime, units: list[int]) -> None:
    now = int(naive.replace(tzinfo=UTC).timestamp() * 1000)
    limit, gauge, used = Limit("k", cap=Cap(100, "day")), Gauge("k"), 0
    for n in units:
        spend(limit, gauge, n, now)
        used += max(n, 0)
    _, turns = span_at(Cap(100, "day"), now)
    assert used_of(Cap(100, "day"), gauge, now) == used
    assert admit(limit, gauge, 0, now) == (0 if used < 100 else turns)
    assert admit(limit, gauge, 0, turns) == 0


def test_a_total_opens_by_no_clock() -> None:
    limit, gauge = Limit("k", cap=Cap(1, "total")), Gauge("k")
    spend(limit, gauge, 1, 5)
    assert admit(limit, gauge, 0, 10**13) is None
    gauge.paused_until = 100
    assert admit(limit, gauge, 0, 50) == 100
    assert not are_stale(gauge.buckets, 10**13)


def test_another_span_starts_where_it_can() -> None:
    """From days to a month, what was used today counts; from a month to days, nothing is known."""
    gauge = Gauge("k")
    now = ms(datetime(2030, 5, 6, 7, tzinfo=UTC))
    spend(Limit("k", cap=Cap(9, "day")), gauge, 5, now)
    assert used_of(Cap(9, "month"), gauge, now) == 5
    spend(Limit("k", cap=Cap(9, "month")), gauge, 1, now)
    assert used_of(Cap(9, "month"), gauge, now) == 6
    assert used_of(Cap(9, "day"), gauge, now) == 0


def test_a_cap_is_a_record_of_integers() -> None:
    limit = Limit("budget:cost:user:*", cap=Cap(5, "month"))
    assert limit.to_json()["cap"] == {"units": 5, "span_ms": 31 * 86_400_000}
    assert Limit.from_json(limit.to_json()) == limit
    assert "cap" not in Limit("k", slots=1).to_json()


@pytest.mark.parametrize(
    "make",
    [
        lambda: Cap(0, "day"),
        lambda: Cap(1, "week"),  # type: ignore[arg-type]
        lambda: Limit("k", slots=1, cap=Cap(1, "day")),
        lambda: Limit.from_json({"key": "k", "slots": None, "cap": {"units": 1, "span_ms": 7}}),
        lambda: Limit.from_json({"key": "k", "slots": None, "cap": 5}),
    ],
)
def test_what_is_no_cap_is_refused(make: object) -> None:
    with pytest.raises(BadInput):
        make()  # type: ignore[operator]


def test_a_budget_is_one_limit_for_each_measure() -> None:
    budget = Budget("user:{user}", cost="1.5/day", tokens="1_000")
    assert budget.key == "user:*"
    assert [(limit.key, limit.cap) for limit in budget.limits] == [
        ("budget:cost:user:*", Cap(1_500_000_000, "day")),
        ("budget:tokens:user:*", Cap(1_000, "total")),
    ]
    assert Budget.from_json(budget.to_json()) == budget


def test_the_budgets_of_a_task() -> None:
    made = (Budget("global", cost="1"), Budget("user:*", cost="1"), Budget("user:ada", cost="2"))
    known = {budget.key: budget for budget in made}
    task = NewTask(id="x", type="ask", user_id="ada", session_id="s")
    assert [(scope, b.key) for scope, b in budgets_of(task, known)] == [
        ("global", "global"),
        ("user:ada", "user:ada"),
    ]
    bob = NewTask(id="x", type="ask", user_id="bob")
    assert [(scope, b.key) for scope, b in budgets_of(bob, known)] == [
        ("global", "global"),
        ("user:bob", "user:*"),
    ]


def test_charges_are_what_was_used_in_the_units_of_each_budget() -> None:
    limits = (("budget:cost:global", 0), ("provider", 1), ("budget:tokens:user:ada", 0))
    assert charges_for(limits, Usage(tokens=5, cost=0.25)) == (
        Charge("budget:cost:global", units=250_000_000),
        Charge("budget:tokens:user:ada", units=5),
    )
    assert charges_for(limits, Usage(tokens=5)) == (Charge("budget:tokens:user:ada", units=5),)


@given(st.text(min_size=1, max_size=400))
def test_a_key_fits_whatever_a_user_is_called(user: str) -> None:
    key = limit_key("tokens", f"user:{user}")
    assert is_budget(key)
    assert len(key) <= 200


@given(st.lists(st.decimals(0, 1000, places=9), max_size=50))
def test_sums_of_money_are_exact(amounts: list[object]) -> None:
    total = Sum()
    for amount in amounts:
        total.add(read_usage(usage_of(cost=str(amount))))
    exact = sum(int(str(amount).replace(".", "")) for amount in map(_fixed, amounts))
    assert total.billionths == exact


def _fixed(amount: object) -> str:
    return f"{amount:.9f}"
