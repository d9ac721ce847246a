"""The calls of operators: queues, the dead, workers, limits, types, webhooks, keys, health."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict, Unpack

from outlast.access import Quota
from outlast.client.tasks import PageFilters, listing
from outlast.client.wire import Call, id_of, nothing, path, shaped
from outlast.core.codec import dumps
from outlast.http.schemas import (
    Budget,
    BudgetPage,
    DeadGroup,
    DeadGroupPage,
    Health,
    Key,
    KeyPage,
    KnownBudget,
    Limit,
    LimitPage,
    MadeKey,
    MadeWebhook,
    Paused,
    Queues,
    Task,
    TaskMetric,
    TaskMetrics,
    TaskPage,
    TaskType,
    TypePage,
    UsagePage,
    Webhook,
    WebhookPage,
    Worker,
    WorkerPage,
)
from outlast.options import HasId
from outlast.usage import By

Role = Literal["admin", "operator", "client", "worker"]


class UsedFor(TypedDict, total=False):
    """What usage may be asked for."""

    type: str | None
    queue: str | None
    model: str | None
    user_id: str | None
    session_id: str | None


class KeyOptions(TypedDict, total=False):
    """What an API key may do; without queues and types it is for all of them."""

    name: str
    queues: Sequence[str]
    types: Sequence[str]
    read_only: bool
    rate: str | None
    """Requests in a time, as in `600/min`."""
    quota: Quota | None
    expires: str | float | None


def health() -> Call[Health]:
    """Engine, workers and circuits; raises `Unavailable` when the engine is down."""
    return Call(method="GET", path="/health", read=shaped(Health), again=True)


def queues() -> Call[Queues]:
    """Depths, counts and pressure of the queues."""
    return Call(method="GET", path="/queues/status", read=shaped(Queues), again=True)


def pause(queue: str) -> Call[Paused]:
    """Let workers take nothing more from a queue; what runs goes on."""
    where = path("/queues/{name}/pause", name=queue)
    return Call(method="POST", path=where, read=shaped(Paused), again=True)


def resume(queue: str) -> Call[Paused]:
    """Let workers take from a queue again."""
    where = path("/queues/{name}/resume", name=queue)
    return Call(method="POST", path=where, read=shaped(Paused), again=True)


def dead_page(**filters: Unpack[PageFilters]) -> Call[TaskPage]:
    """One page of dead tasks, newest first."""
    return listing("/queues/dlq", filters)


def dead_groups() -> Call[list[DeadGroup]]:
    """Dead tasks by what killed them, the most frequent first."""
    return Call(
        method="GET", path="/queues/dlq", params={"group_by": "fingerprint"},
        read=lambda data: shaped(DeadGroupPage)(data).items, again=True,
    )  # fmt: skip


def workers() -> Call[list[Worker]]:
    """Workers: what they serve, and whether they are alive."""
    return Call(
        method="GET", path="/workers", read=lambda data: shaped(WorkerPage)(data).items, again=True
    )


def drain_worker(worker: str) -> Call[Worker]:
    """Let a worker end what it runs, and stop."""
    where = path("/workers/{worker_id}/drain", worker_id=worker)
    return Call(method="POST", path=where, read=shaped(Worker), again=True)


def limits() -> Call[LimitPage]:
    """Definitions, and the gauges of the keys in use."""
    return Call(method="GET", path="/limits", read=shaped(LimitPage), again=True)


def set_limit(
    key: str,
    *,
    slots: int | None = None,
    rate: str | None = None,
    trip: Mapping[str, object] | None = None,
) -> Call[Limit]:
    """Define a limit, by key or family: `set_limit("user:*", slots=2, trip={"rate": 0.5})`."""
    return Call(
        method="PUT", path=path("/limits/{key}", key=key), read=shaped(Limit), again=True,
        body=dumps({"slots": slots, "rate": rate, "trip": trip}, "limit"),
    )  # fmt: skip


def delete_limit(key: str) -> Call[None]:
    """Delete a definition; one that code gives comes back as code gives it."""
    return Call(method="DELETE", path=path("/limits/{key}", key=key), read=nothing)


def reset_limit(key: str) -> Call[Limit]:
    """Close the circuit of a key or family, and let its rate start afresh."""
    where = path("/limits/{key}/reset", key=key)
    return Call(method="POST", path=where, read=shaped(Limit), again=True)


def usage(
    by: By = "day", *, since: str | None = None, until: str | None = None, **where: Unpack[UsedFor]
) -> Call[UsagePage]:
    """What was used: `usage("model", since="2026-11-01", user_id="ada")`."""
    told = {"by": by, "from": since, "to": until, **where}
    params = {name: str(value) for name, value in told.items() if value is not None}
    return Call(method="GET", path="/usage", params=params, read=shaped(UsagePage), again=True)


def budgets() -> Call[list[KnownBudget]]:
    """Budgets, and what was used of them."""
    return Call(
        method="GET", path="/budgets", read=lambda data: shaped(BudgetPage)(data).items, again=True
    )


def set_budget(
    key: str,
    *,
    cost: str | None = None,
    tokens: str | None = None,
    then: Literal["hold", "refuse"] = "hold",
) -> Call[Budget]:
    """Define a budget: `set_budget("user:*", cost="5.00/day", then="refuse")`."""
    return Call(
        method="PUT", path=path("/budgets/{key}", key=key), read=shaped(Budget), again=True,
        body=dumps({"cost": cost, "tokens": tokens, "then": then}, "budget"),
    )  # fmt: skip


def delete_budget(key: str) -> Call[None]:
    """Delete a budget; one that code gives comes back as code gives it."""
    return Call(method="DELETE", path=path("/budgets/{key}", key=key), read=nothing)


def history(
    by: Literal["hour", "day"] = "day", *, since: str | None = None, until: str | None = None
) -> Call[list[TaskMetric]]:
    """What happened per hour or day, by type and queue, oldest first."""
    told = {"by": by, "from": since, "to": until}
    return Call(
        method="GET", path="/metrics/tasks", params={n: v for n, v in told.items() if v},
        read=lambda data: shaped(TaskMetrics)(data).items, again=True,
    )  # fmt: skip


def types() -> Call[list[TaskType]]:
    """Every type that may be enqueued, with the JSON Schema of its payload."""
    return Call(
        method="GET", path="/types", read=lambda data: shaped(TypePage)(data).items, again=True
    )


# Webhooks ----------------------------------------------------------------------------------------


def webhooks() -> Call[list[Webhook]]:
    """Subscriptions, without their secrets."""
    return Call(
        method="GET", path="/webhooks", read=lambda data: shaped(WebhookPage)(data).items,
        again=True,
    )  # fmt: skip


def create_webhook(
    url: str, *, events: Sequence[str] | None = None, filter: str = ""
) -> Call[MadeWebhook]:
    """Subscribe to what happens; its `secret` is shown this once."""
    told = {"url": url, "filter": filter, **({} if events is None else {"events": events})}
    return Call(
        method="POST", path="/webhooks", read=shaped(MadeWebhook), body=dumps(told, "webhook")
    )


def delete_webhook(id: str) -> Call[None]:
    """Unsubscribe."""
    return Call(method="DELETE", path=path("/webhooks/{id}", id=id), read=nothing)


def rotate_webhook(id: str) -> Call[MadeWebhook]:
    """A new secret; the old one signs beside it until the next rotation."""
    where = path("/webhooks/{id}/rotate", id=id)
    return Call(method="POST", path=where, read=shaped(MadeWebhook))


def enable_webhook(id: str) -> Call[Webhook]:
    """Send there again."""
    where = path("/webhooks/{id}/enable", id=id)
    return Call(method="POST", path=where, read=shaped(Webhook), again=True)


def deliveries_page(webhook: str, **filters: Unpack[PageFilters]) -> Call[TaskPage]:
    """One page of a webhook's deliveries, newest first: each is a task."""
    return listing(path("/webhooks/{id}/deliveries", id=webhook), filters)


def replay(webhook: str, delivery: HasId | str) -> Call[Task]:
    """Send a delivery again, under its id."""
    where = path("/webhooks/{id}/deliveries/{task}/replay", id=webhook, task=id_of(delivery))
    return Call(method="POST", path=where, read=shaped(Task))


# Keys --------------------------------------------------------------------------------------------


def keys() -> Call[list[Key]]:
    """API keys, without the keys."""
    return Call(
        method="GET", path="/keys", read=lambda data: shaped(KeyPage)(data).items, again=True
    )


def create_key(role: Role, **options: Unpack[KeyOptions]) -> Call[MadeKey]:
    """Make an API key; its `key` is shown this once."""
    told = {name: value for name, value in options.items() if value not in (None, "")}
    body = dumps({"role": role, **told}, "key")
    return Call(method="POST", path="/keys", read=shaped(MadeKey), body=body)


def revoke_key(id: str) -> Call[None]:
    """Revoke a key; servers follow within seconds."""
    return Call(method="DELETE", path=path("/keys/{id}", id=id), read=nothing)
