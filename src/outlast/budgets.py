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
from outlast.core.model import GaugeView, NewTask, Put, Record
from outlast.core.states import Ms
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

    def forget(self) -> None:
        """Something was set: read it again."""
        self._read_at = float("-inf")

    async def known(self, engine: Engine) -> Mapping[str, Budget]:
        if monotonic() - self._read_at > FRESH_S:
            self._known = {record.key: _read(record) for record in await engine.get(KIND)}
            self._read_at = monotonic()
        return self._known

    async def carried(
        self, engine: Engine, tasks: Sequence[NewTask], *, admit: bool = False
    ) -> list[NewTask]:
        """The tasks with the limits of their budgets. With `admit`, `BudgetSpent` when one that
        refuses is used up."""
        known = await self.known(engine) if tasks else {}
        if not known:
            return list(tasks)
        found = []
        strict: dict[str, Budget] = {}
        for task in tasks:
            mine = [] if task.type.startswith(OWN) else budgets_of(task, known)
            keys = []
            for scope, budget in mine:
                own = [limit_key(measure, scope) for measure, _ in budget.caps]
                keys += own
                if budget.then == "refuse":
                    strict |= dict.fromkeys(own, budget)
            limits = (*task.limits, *((key, 0) for key in keys))
            found.append(replace(task, limits=limits) if keys else task)
        if admit and strict:
            await _admit(engine, strict)
        return found


async def _admit(engine: Engine, strict: Mapping[str, Budget]) -> None:
    now = await engine.now()
    for gauge in await engine.gauges(sorted(strict)):
        use = use_of(gauge, now)
        if use is None or use.used < use.amount:
            continue
        when = "It is for ever"
        if use.resets_at is not None:
            when = f"It begins anew at {iso(use.resets_at)}"
        raise BudgetSpent(
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
    app.purse.forget()
    return {**_told(budget), "source": "people"}


async def delete_budget(app: Outlast, key: str) -> None:
    """Delete a budget; one that code gives comes back as code gives it."""
    if not await app.engine.get(KIND, [key]):
        raise NotFound(f"There is no budget {key!r}.")
    gone = [Put(kind="limit", key=limit_key(m, key), value=None) for m in MEASURES]
    await app.engine.put([Put(kind=KIND, key=key, value=None), *gone])
    if key in app.purse.given:
        await app.publish()
    app.purse.forget()


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
