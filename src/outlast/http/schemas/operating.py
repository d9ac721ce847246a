"""Webhooks, health and metrics."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from outlast.http.schemas.base import Id, Object, Sent, Time
from outlast.webhooks import HAPPENINGS, Happening


class NewWebhook(Sent, kw_only=True):
    """Where to send what."""

    url: Annotated[str, Meta(max_length=2000)]
    events: tuple[Happening, ...] = HAPPENINGS
    filter: Annotated[str, Meta(max_length=2000)] = ""
    """By type, queue, session and workflow, as in `type:report -queue:bulk`."""


class Webhook(Struct, kw_only=True):
    """A subscription."""

    id: Id
    url: str
    events: list[Happening]
    filter: str
    disabled: str | None
    created_at: Time


class MadeWebhook(Webhook, kw_only=True):
    """A subscription with its newest secret."""

    secret: str


class WebhookPage(Struct):
    """All subscriptions."""

    items: list[Webhook]
    next: str | None


class Health(Struct):
    """How the server, its engine and its workers are."""

    status: Literal["healthy", "degraded", "unhealthy"]
    components: dict[Literal["engine", "workers", "circuit_breaker"], Object | None]
    timestamp: Time | None


class Times(Struct):
    """How long something took, in seconds."""

    average: float | None
    p95: float | None


class TaskMetric(Struct):
    """What happened to one type in one queue, in one hour or day."""

    begin: Time
    end: Time
    type: str
    queue: str
    enqueued: int
    completed: int
    dead: int
    cancelled: int
    retried: int
    failed: int
    """Attempts that failed."""
    timed_out: int
    error_rate: float | None
    """Of the attempts that succeeded or failed, how many failed."""
    wait: Times
    """From when a task was due until its attempt began."""
    run: Times
    heartbeat_delay: float
    """The longest that a living worker was not heard of, in seconds."""


class TaskMetrics(Struct):
    """What happened, oldest first."""

    items: list[TaskMetric]
    next: str | None


class Alive(Struct):
    """The process answers."""

    status: str
