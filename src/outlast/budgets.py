"""Budgets at work: which tasks carry them, who is refused, and how they are set at run time.

A budget is a record of kind `budget`, and a limit for each of its measures, which is what engines
know of it. A task carries the limits of the budgets that apply to it when it is enqueued.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from outlast.core.budgets import (
    PREFIX,
    Budget,
    amount,
    budgets_of,
    is_budget,
    limit_key,
)
from outlast.core.codec import dumps
from outlast.core.errors import BadInput, BudgetSpent, NotFound
from outlast.core.limits import Limit, Span, span_at
from outlast.core.model import GaugeView, NewTask, Put, Record, TaskQuery
from outlast.core.states import FINAL, Ms
from outlast.core.usage import MEASURES
from outlast.engine import Engine
from outlast.views import View, iso

if TYPE_CHECKING:
    from outlast.app import Outlast

KIND: Final = "budget"
FRESH_S: Final = 1.0  # as long as a process may go by what it last read
OWN: Final = "outlast."
"""Types of Outlast's own use no model, and wait for no budget."""


class Purse:
    """The budgets as this process knows them: those of its code, and those in the engine."""

    def __init__(self, given: Iterable[Budget] = ()) -> None:
        self.given = {budget.key: budget for budget in given}
        self._known: Mapping[str, Budget] = {}
        self._read_at = float("-inf")

    async def refresh(self, engine: Engine, *, now: bool = False) -> None:
        """Not inside a transaction of the engine's: its one connection may be the one to read."""
        if now or monotonic() - self._read_at > FRESH_S:
            self._known = {record.key: _read(record) for record in await engine.get(KIND)}
            self._read_at = monotonic()

    def carried(self, tasks: Sequence[NewTask]) -> list[NewTask]:
        """The tasks with the limits of their budgets."""
        if not self._known:
            return list(tasks)
        return [_carrying(task, self._of(task)) for task in tasks]

    async def admit(self, engine: Engine, tasks: Sequence[NewTask]) -> None:
        """`BudgetSpent` when a budget that refuses is used up, unless all tasks are there already:
        a repeated enqueue is answered, not refused."""
        strict = {
            limit_key(measure, scope)
            for task in tasks
            for scope, budget in (self._of(task) if self._known else ())
            for measure, _ in budget.caps
            if budget.then == "refuse"
        }
        if not strict:
            return
        now = await engine.now()
        for gauge in await engine.gauges(sorted(strict)):
            use = use_of(gauge, now)
            if use is not None and use.used >= use.amount:
                if await _are_there(engine, tasks, now):
                    return
                raise _spent(use, now)

    def _of(self, task: NewTask) -> list[tuple[str, Budget]]:
        return [] if task.type.startswith(OWN) else budgets_of(task, self._known)


async def _are_there(engine: Engine, tasks: Sequence[NewTask], now: Ms) -> bool:
    """Would enqueueing these change nothing?"""
    ids = tuple(task.id for task in tasks)
    page = await engine.tasks(TaskQuery.of(id=ids, limit=len(ids)))
    there = {task.id for task in page.items}
    for task in tasks:
        if task.id in there:
            continue
        if task.unique_key is None:
            return False
        met = (await engine.tasks(TaskQuery.of(unique_key=task.unique_key, limit=1))).items
        span_ms = task.unique_for_ms
        if not met or (
            met[0].state in FINAL if span_ms is None else met[0].created_at + span_ms <= now
        ):
            return False
    return True


def _carrying(task: NewTask, budgets: Sequence[tuple[str, Budget]]) -> NewTask:
    keys = [(limit_key(m, scope), 0) for scope, budget in budgets for m, _ in budget.caps]
    return replace(task, limits=(*task.limits, *keys)) if keys else task


def _spent(use: Use, now: Ms) -> BudgetSpent:
    when = "It is for ever"
    if use.resets_at is not None:
        when = f"It begins anew at {iso(use.resets_at)}"
    return BudgetSpent(
        f"The budget {use.key!r} is used up: {use.used:,} of {use.amount:,} ({use.measure})."
        f" {when}; or raise it: PUT /api/v1/budgets/{use.defined}",
        key=use.key,
        resets_at=use.resets_at,
        after_ms=None if use.resets_at is None else use.resets_at - now,
    )


# Looking and setting -----------------------------------------------------------------------------


class Use(Struct, frozen=True, kw_only=True):
    """How much of a budget one scope has used, in the span that runs."""

    key: str
    """Whose: `user:ada`."""
    defined: str
    """The budget: `user:*`."""
    measure: str
    used: float
    amount: float
    span: Span
    resets_at: Ms | None
    waiting: int


def use_of(gauge: GaugeView, now: Ms) -> Use | None:
    limit = None if gauge.limit is None else Limit.from_json(msgspec.json.decode(gauge.limit))
    if limit is None or limit.cap is None:
        return None
    measure, _, scope = gauge.key.removeprefix(PREFIX).partition(":")
    return Use(
        key=scope,
        defined=limit.key.removeprefix(f"{PREFIX}{measure}:"),
        measure=measure,
        used=amount(measure, gauge.spent),
        amount=amount(measure, limit.cap.units),
        span=limit.cap.span,
        resets_at=span_at(limit.cap, now)[1] or None,
        waiting=gauge.waiting,
    )


async def budgets(app: Outlast) -> list[View]:
    """Every budget, with what was used of it in the spans that run."""
    engine = app.engine
    now = await engine.now()
    used: dict[str, list[View]] = {}
    for gauge in await engine.gauges():
        use = use_of(gauge, now) if is_budget(gauge.key) else None
        if use is not None:
            shown = {**asdict(use), "resets_at": iso(use.resets_at)}
            used.setdefault(shown.pop("defined"), []).append(shown)
    return [
        {**_view(record), "used": used.get(record.key, [])} for record in await engine.get(KIND)
    ]


async def set_budget(app: Outlast, key: str, body: Mapping[str, object]) -> View:
    """Define a budget at run time: `{"cost": "5.00/day", "then": "refuse"}`.

    It stays when a program with another definition starts, until it is deleted.
    """
    for name in body.keys() - {"key", "cost", "tokens", "then"}:
        raise BadInput(f"{name[:60]}: a budget has cost, tokens and then.", field=name[:60])
    budget = Budget.from_json({**body, "key": key})
    await app.engine.put(_puts(budget))
    await app.purse.refresh(app.engine, now=True)
    return {**_told(budget), "source": "people"}


async def delete_budget(app: Outlast, key: str) -> None:
    """Delete a budget; one that code gives comes back as code gives it."""
    if not await app.engine.get(KIND, [key]):
        raise NotFound(f"There is no budget {key!r}.")
    gone = [Put(kind="limit", key=limit_key(m, key), value=None) for m in MEASURES]
    await app.engine.put([Put(kind=KIND, key=key, value=None), *gone])
    if key in app.purse.given:
        await app.publish()
    await app.purse.refresh(app.engine, now=True)


def _puts(budget: Budget) -> list[Put]:
    """The limits come first: what a task carries is to be there."""
    limits = {limit.key: limit for limit in budget.limits}
    puts = []
    for measure in MEASURES:
        key = limit_key(measure, budget.key)
        limit = limits.get(key)
        told = None if limit is None else dumps({**limit.to_json(), "source": "people"}, "limit")
        puts.append(Put(kind="limit", key=key, value=told))
    value = dumps({**budget.to_json(), "source": "people"}, KIND)
    return [*puts, Put(kind=KIND, key=budget.key, value=value)]


def _read(record: Record) -> Budget:
    return Budget.from_json(msgspec.json.decode(record.value))


def _view(record: Record) -> View:
    told = msgspec.json.decode(record.value)
    return {**_told(_read(record)), "source": "code" if told["source"] == "code" else "people"}


def _told(budget: Budget) -> View:
    return dict(budget.to_json())
