"""Budgets: what tasks may use, who waits and who is refused when it is used up."""

from __future__ import annotations

from typing import Any

import pytest

from outlast import BadInput, Budget, BudgetSpent, Context, NotFound, Outlast, Retry
from outlast.budgets import budgets, delete_budget, set_budget
from outlast.core.model import TaskQuery
from outlast.handler import Handler
from outlast.ops import limits, set_limit
from outlast.testing import testing
from outlast.why import why


def asking(*given: Budget, **options: Any) -> tuple[Outlast, Handler[..., Any]]:
    """An app with a type that uses what it is told to."""
    app = Outlast("memory://", budgets=given)

    @app.task(name="ask", **options)
    async def ask(ctx: Context, tokens: int = 0, cost: float = 0, fails: int = 0) -> None:
        await ctx.usage(tokens=tokens, cost=cost)
        if ctx.attempt <= fails:
            raise ConnectionError("again")

    return app, ask


async def midnight(t: testing) -> None:
    """A span that has just begun does not turn in the middle of a test."""
    now = await t.app.engine.now()
    await t.advance(f"{86_400_000 - now % 86_400_000}ms")


async def test_tasks_wait_when_the_budget_is_used_up_and_say_so() -> None:
    app, ask = asking(Budget("user:*", cost="5.00/day"))
    async with testing(app) as t:
        await midnight(t)
        for cost in (3, 1.99, 4):
            await ask.options(user_id="ada").enqueue(cost=cost)
            await t.run()
        held = await ask.options(user_id="ada").enqueue(cost=1)
        other = await ask.options(user_id="bob").enqueue(cost=1)
        nobody = await ask.enqueue(cost=1)
        await t.run()
        assert await t.status(held) == "throttled"
        assert await t.status(other) == await t.status(nobody) == "completed"
        told = await why(app, held.id)
        assert told.waits_for == "budget"
        assert "'user:ada' is used up: 8.99 of 5.0 (cost) a day" in told.text
        assert told.action == "Raise it: PUT /budgets/user:*"
        assert told.until is not None and told.until % 86_400_000 == 0
        await t.advance("1d")
        await t.run()
        assert await t.status(held) == "completed"


async def test_new_tasks_are_refused_where_the_budget_says_so() -> None:
    app, ask = asking(Budget("type:ask", tokens="100/hour", then="refuse"))
    async with testing(app) as t:
        await midnight(t)
        await ask.enqueue(tokens=100)
        late = await ask.options(delay="1m").enqueue(tokens=1)
        await t.run()
        with pytest.raises(
            BudgetSpent, match=r"'type:ask' is used up: 100 of 100 \(tokens\)"
        ) as no:
            await ask.enqueue(tokens=1)
        assert no.value.resets_at is not None
        assert no.value.after_ms is not None and 0 < no.value.after_ms <= 3_600_000
        # What was accepted before it was used up waits.
        await t.advance("1m")
        await t.run()
        assert await t.status(late) == "throttled"
        await t.advance("1h")
        await t.run()
        assert await t.status(late) == "completed"
        await ask.enqueue(tokens=1)


async def test_a_batch_is_refused_as_a_whole() -> None:
    app, ask = asking(Budget("user:ada", tokens="1", then="refuse"))
    async with testing(app) as t:
        await ask.options(user_id="ada").enqueue(tokens=1)
        await t.run()
        calls = [ask.options(user_id=user).call(tokens=1) for user in ("bob", "ada")]
        with pytest.raises(BudgetSpent, match="for ever"):
            await app.enqueue(calls)
        counts = await app.engine.count(TaskQuery())
        assert sum(count.n for count in counts) == 1


async def test_a_repeated_enqueue_is_answered_and_not_refused() -> None:
    app, ask = asking(Budget("global", tokens="1/day", then="refuse"))
    async with testing(app) as t:
        await midnight(t)
        named = ask.options(unique_key="once", unique_for="1h")
        first = await named.enqueue(tokens=1)
        held = await ask.options(unique_key="living", delay="1h").enqueue(tokens=1)
        key = await app.submit("ask", {"tokens": 1}, idempotency_key="k", delay="1h")
        await t.run()
        assert (await named.enqueue(tokens=1)).id == first.id
        assert (await ask.options(id=first.id).enqueue(tokens=1)).existing
        assert (await ask.options(unique_key="living").enqueue(tokens=1)).id == held.id
        again = await app.submit("ask", {"tokens": 1}, idempotency_key="k", delay="1h")
        assert (again.id, again.existing) == (key.id, True)
        for new in (ask, ask.options(unique_key="other")):
            with pytest.raises(BudgetSpent):
                await new.enqueue(tokens=1)
        with pytest.raises(BudgetSpent):
            await app.enqueue([named.call(tokens=1), ask.call(tokens=1)])
        await t.advance("2h")
        with pytest.raises(BudgetSpent):
            await named.enqueue(tokens=1)


async def test_every_scope_has_its_budget() -> None:
    for key, options in {
        "global": {},
        "type:ask": {},
        "type:*": {},
        "queue:slow": {"queue": "slow"},
        "user:ada": {"user_id": "ada"},
        "user:{user}": {"user_id": "ada"},
        "session:*": {"session_id": "s-1"},
    }.items():
        app, ask = asking(Budget(key, tokens="10/day"))
        async with testing(app) as t:
            await ask.options(**options).enqueue(tokens=10)
            await t.run()
            held = await ask.options(**options).enqueue(tokens=10)
            await t.run()
            assert await t.status(held) == "throttled", key


async def test_the_budget_of_one_user_comes_before_that_of_all() -> None:
    app, ask = asking(Budget("user:*", tokens="10/day"), Budget("user:ada", tokens="20/day"))
    async with testing(app) as t:
        for user in ("ada", "bob"):
            await ask.options(user_id=user).enqueue(tokens=10)
        await t.run()
        ada = await ask.options(user_id="ada").enqueue(tokens=10)
        bob = await ask.options(user_id="bob").enqueue(tokens=10)
        await t.run()
        assert (await t.status(ada), await t.status(bob)) == ("completed", "throttled")


async def test_a_retry_waits_for_the_budget_too() -> None:
    app, ask = asking(Budget("global", tokens="10/day"), retry=Retry("1s"))
    async with testing(app) as t:
        handle = await ask.enqueue(tokens=10, fails=1)
        await t.run()
        await t.advance("2s")
        await t.run()
        assert await t.status(handle) == "throttled"


async def test_raised_at_run_time_it_lets_waiters_pass_and_forgets_nothing() -> None:
    app, ask = asking(Budget("user:*", cost="1/month", tokens="100"))
    async with testing(app) as t:
        await ask.options(user_id="ada").enqueue(cost=1.5, tokens=2)
        await t.run()
        held = await ask.options(user_id="ada").enqueue()
        await t.run()
        await set_budget(app, "user:*", {"cost": "1.50/month", "tokens": "100"})
        await t.run()
        assert await t.status(held) == "throttled"
        await set_budget(app, "user:*", {"cost": "1.51/month"})
        await t.run()
        assert await t.status(held) == "completed"
        [shown] = await budgets(app)
        assert (shown["cost"], shown["tokens"], shown["source"]) == ("1.51/month", None, "people")
        [used] = shown["used"]  # type: ignore[misc]  # a view is open
        assert (used["key"], used["measure"], used["used"], used["amount"], used["span"]) == (
            "user:ada", "cost", 1.5, 1.51, "month",
        )  # fmt: skip


async def test_deleted_it_holds_nobody_and_code_gives_its_own_back() -> None:
    app, ask = asking(Budget("global", tokens="1"))
    async with testing(app) as t:
        await set_budget(app, "user:ada", {"tokens": "1"})
        await ask.options(user_id="ada").enqueue(tokens=1)
        await t.run()
        held = await ask.options(user_id="ada").enqueue(tokens=1)
        await t.run()
        await delete_budget(app, "user:ada")
        with pytest.raises(NotFound):
            await delete_budget(app, "user:ada")
        await delete_budget(app, "global")
        assert [(b["key"], b["source"]) for b in await budgets(app)] == [("global", "code")]
        await set_budget(app, "global", {"tokens": "2"})
        await t.run()
        assert await t.status(held) == "completed"


async def test_one_that_is_set_later_counts_for_what_is_enqueued_from_then_on() -> None:
    app, ask = asking()
    async with testing(app) as t:
        await ask.enqueue(tokens=5)
        await set_budget(app, "global", {"tokens": "5/day", "then": "refuse"})
        await t.run()
        await ask.enqueue(tokens=5)
        await t.run()
        with pytest.raises(BudgetSpent):
            await ask.enqueue(tokens=5)


async def test_limits_and_budgets_are_kept_apart() -> None:
    app, ask = asking(Budget("global", tokens="5/day"))
    async with testing(app) as t:
        await ask.enqueue(tokens=1)
        await t.run()
        shown = await limits(app)
        assert shown["items"] == shown["gauges"] == []
        with pytest.raises(BadInput, match="budgets"):
            await set_limit(app, "budget:tokens:global", {"slots": 1})


async def test_names_too_long_for_a_key_are_told_apart() -> None:
    app, ask = asking(Budget("user:*", tokens="1/day"))
    async with testing(app) as t:
        ada, bob = "a" * 199 + "1", "a" * 199 + "2"
        await ask.options(user_id=ada).enqueue(tokens=1)
        await t.run()
        held = await ask.options(user_id=ada).enqueue(tokens=1)
        free = await ask.options(user_id=bob).enqueue(tokens=1)
        await t.run()
        assert (await t.status(held), await t.status(free)) == ("throttled", "completed")


@pytest.mark.parametrize(
    ("key", "told", "says"),
    [
        ("user:*", {}, "cost= or tokens="),
        ("", {"cost": "1"}, "global, or one of"),
        ("user", {"cost": "1"}, "global, or one of"),
        ("user:", {"cost": "1"}, "global, or one of"),
        ("tenant:x", {"cost": "1"}, "global, or one of"),
        ("user:a*", {"cost": "1"}, "global, or one of"),
        ("user:*:*", {"cost": "1"}, "global, or one of"),
        ("user:a\0b", {"cost": "1"}, "global, or one of"),
        ("user:\ud800", {"cost": "1"}, "global, or one of"),
        ("user:" + "a" * 201, {"cost": "1"}, "global, or one of"),
        ("global", {"cost": "much"}, "amount per hour"),
        ("global", {"cost": "1/week"}, "amount per hour"),
        ("global", {"cost": "0/day"}, "more than 0"),
        ("global", {"tokens": "1.5/day"}, "more than 0"),
        ("global", {"cost": "99999999/day"}, "an amount from 0"),
        ("global", {"cost": "1", "then": "shout"}, "'hold' or 'refuse'"),
    ],
)
def test_nonsense_is_refused(key: str, told: dict[str, Any], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        Budget(key, **told)


async def test_in_a_transaction_nothing_is_refused_but_it_waits() -> None:
    app, ask = asking(Budget("global", tokens="1/day", then="refuse"))
    async with testing(app) as t:
        await midnight(t)
        await ask.enqueue(tokens=1)
        await t.run()
        async with app.engine.transaction() as tx:
            held = await ask.options(within=tx).enqueue(tokens=1)
        await t.run()
        assert await t.status(held) == "throttled"


async def test_children_wait_for_their_budget_too() -> None:
    app, ask = asking(Budget("type:ask", tokens="1/day", then="refuse"))

    @app.task()
    async def parent(ctx: Context) -> None:
        await ctx.call(ask, tokens=1)

    async with testing(app) as t:
        await midnight(t)
        first = await parent.enqueue()
        await t.run()
        second = await parent.enqueue()
        await t.run()
        assert (await t.status(first), await t.status(second)) == ("completed", "blocked")
        [child] = (await app.engine.tasks(TaskQuery.of(type="ask", status="throttled"))).items
        assert child.parked == "limit:budget:tokens:type:ask"
        await t.advance("1d")
        await t.run()
        assert await t.status(second) == "completed"
