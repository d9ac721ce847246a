"""Queues, workers, limits, budgets and what was used."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Struct, UnsetType, field

from outlast.core.states import Status
from outlast.http.schemas.base import Id, Sent, Span, Time
from outlast.http.schemas.tasks import UsageSum


class Queue(Struct, kw_only=True):
    """Depths and counts of one queue."""

    primary: int
    retry: int
    scheduled: int
    dlq: int
    states: dict[Status, int]
    retry_ratio: float
    pressure: Literal["normal", "warning", "critical"]
    oldest_seconds: float
    paused: bool
    completed_per_minute: int


class Queues(Struct):
    """Depths and counts of all queues."""

    queues: dict[Literal["primary", "retry", "scheduled", "dlq"], int]
    states: dict[Status, int]
    retry_ratio: float
    pressure: Literal["normal", "warning", "critical"]
    by_queue: dict[str, Queue]


class Paused(Struct):
    """A queue, and whether workers take from it."""

    queue: str
    paused: bool


class Worker(Struct):
    """A worker that has registered."""

    id: str
    host: str
    pid: int
    version: str
    queues: list[str]
    types: list[str]
    slots: int
    running: int
    alive: bool
    started_at: Time | None
    seen_at: Time
    lease_until: Time
    draining: bool
    """It was asked to end what it runs, and to stop."""


class WorkerPage(Struct):
    """All workers."""

    items: list[Worker]
    next: str | None


class TripSpec(Sent):
    """A circuit breaker."""

    rate: float = 0.5
    volume: int = 10
    window: Span = "60s"
    open: Span = "60s"


class LimitSpec(Sent):
    """A limit: slots, a rate such as `60/min`, a circuit breaker, or several of them."""

    slots: int | None = None
    rate: str | None = None
    trip: TripSpec | None = None


class Limit(Struct):
    """A definition, by exact key or family."""

    key: str
    slots: int | None
    rate: str | None
    trip: TripSpec | None


class KnownLimit(Limit):
    """A definition and who gave it."""

    source: Literal["code", "people"]


class Gauge(Struct):
    """The state of a limit key that is in use."""

    key: str
    limit: Limit | None
    used: int
    waiting: int
    circuit: Literal["closed", "open", "half_open"]
    open_until: Time | None
    paused_until: Time | None
    probe: Id | None
    holders: list[Id]


class LimitPage(Struct):
    """All definitions, and the keys in use."""

    items: list[KnownLimit]
    gauges: list[Gauge]
    next: str | None


class BudgetSpec(Sent):
    """Amounts such as `5.00/day`: per hour, day or month (UTC), or without a span for ever."""

    cost: str | None = None
    tokens: str | None = None
    then: Literal["hold", "refuse"] = "hold"
    """When it is used up: tasks wait, or new ones are refused."""


class Budget(Struct, kw_only=True):
    """A definition: `global`, or `type:`, `queue:`, `user:` or `session:` with a name or a star."""

    key: str
    cost: str | None
    tokens: str | None
    then: Literal["hold", "refuse"]
    source: Literal["code", "people"]


class BudgetUse(Struct, kw_only=True):
    """What was used in the span that runs."""

    key: str
    """Whose: `user:ada`."""
    measure: Literal["cost", "tokens"]
    used: float
    amount: float
    span: Literal["hour", "day", "month", "total"]
    resets_at: Time | None
    waiting: int


class KnownBudget(Budget, kw_only=True):
    """A budget and its use."""

    used: list[BudgetUse]


class BudgetPage(Struct):
    """All budgets."""

    items: list[KnownBudget]
    next: str | None


class UsageItem(UsageSum, kw_only=True):
    """The sum for one day, type, queue, model, user or session; null is for none."""

    day: str | UnsetType = UNSET
    type: str | UnsetType | None = UNSET
    queue: str | UnsetType | None = UNSET
    model: str | UnsetType | None = UNSET
    user: str | UnsetType | None = UNSET
    session: str | UnsetType | None = UNSET


class UsagePage(Struct, kw_only=True):
    """What was used from one day to another, the dearest first; days as they come."""

    by: Literal["day", "type", "queue", "model", "user", "session"]
    first: str = field(name="from")
    last: str = field(name="to")
    items: list[UsageItem]
    total: UsageSum
    next: str | None
