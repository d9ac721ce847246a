"""Prometheus metrics: which there are, where their values come from, and how they are written.

What was counted comes from the whole fleet (`fleet.py`), what is there now from the engine. Every
server answers with the same of these; a dashboard takes the maximum over servers, not the sum.
Labels are types, queues, states and limits as defined: never an id, a user or a path.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

import msgspec
from msgspec import Struct

from outlast.app import Outlast
from outlast.core.limits import Limit
from outlast.core.model import Count, GaugeView, TaskQuery, WorkerView
from outlast.core.states import FINAL, STATUSES, Ms
from outlast.core.totals import BOUNDS_MS, Spread, Totals, labels_of
from outlast.meter import OTHER
from outlast.ops import is_paused
from outlast.webhooks import DELIVERY

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
MAX_NAMES: Final = 200  # values of one label; what is beyond them is "other"

Labels = tuple[str, ...]
Values = dict[Labels, float | Spread]
Samples = dict[str, Values]
"""By the name of the metric, by its labels."""


class Family(Struct, frozen=True):
    """One metric. Those of a server are about this process alone, all others about the fleet."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: Labels = ()
    source: str = ""
    """The name under which a meter counts it."""
    of: Literal["fleet", "server"] = "fleet"


_TYPED: Final = ("type", "queue")

FAMILIES: Final = (
    Family("outlast_build_info", "gauge", "1; the version is a label.", ("version",), of="server"),
    Family("outlast_engine_up", "gauge", "1 when the engine answers, else 0.", of="server"),
    Family("outlast_tasks", "gauge", "Tasks that are kept.", ("status", *_TYPED)),
    Family("outlast_queue_depth", "gauge", "Tasks that are ready.", ("queue", "lane")),
    Family("outlast_queue_oldest_seconds", "gauge",
           "How long the oldest ready task has been due.", ("queue",)),
    Family("outlast_queue_paused", "gauge", "1 when the queue is paused.", ("queue",)),
    Family("outlast_users_active", "gauge", "Users with tasks that are not over."),
    Family("outlast_user_tasks_max", "gauge", "The most such tasks of one user."),
    Family("outlast_tasks_enqueued_total", "counter", "Tasks handed over.", _TYPED, "enqueued"),
    Family("outlast_tasks_finished_total", "counter",
           "Attempts that ended their task: completed, dead or cancelled.",
           (*_TYPED, "state"), "ended"),
    Family("outlast_tasks_retried_total", "counter",
           "Attempts that failed and will be followed by another.", _TYPED, "retried"),
    Family("outlast_attempts_total", "counter", "Attempts that ended.",
           (*_TYPED, "outcome"), "attempts"),
    Family("outlast_queue_wait_seconds", "histogram",
           "From when a task was due until its attempt began.", _TYPED, "wait"),
    Family("outlast_attempt_duration_seconds", "histogram", "How long attempts ran.",
           _TYPED, "run"),
    Family("outlast_tasks_rescued_total", "counter",
           "Tasks of lost workers that run again.", (), "rescued"),
    Family("outlast_tasks_stalled_dead_total", "counter",
           "Tasks that died because they lost too many workers.", (), "died"),
    Family("outlast_tasks_expired_total", "counter",
           "Tasks that died waiting, at their max_age.", (), "expired"),
    Family("outlast_stale_writes_refused_total", "counter",
           "Writes of attempts that had lost their lease.", (), "refused"),
    Family("outlast_workers", "gauge", "Workers that are alive."),
    Family("outlast_worker_slots", "gauge", "Attempts that they can run at once."),
    Family("outlast_worker_slots_busy", "gauge", "Attempts that they run."),
    Family("outlast_worker_heartbeat_delay_seconds", "gauge",
           "The longest that one of them was not heard of."),
    Family("outlast_limit_used", "gauge", "Slots that are held, of all keys of a definition.",
           ("limit",)),
    Family("outlast_limit_waiting", "gauge", "Tasks that wait for it.", ("limit",)),
    Family("outlast_limit_circuits", "gauge", "Keys of it whose circuit is in this state.",
           ("limit", "circuit")),
    Family("outlast_notifications_due_total", "counter",
           "Tasks of sessions that ended in a worker: somebody is to be told.", (), "notices_due"),
    Family("outlast_notifications_pushed_total", "counter",
           "Notifications sent over an open connection.", (), "notices_pushed"),
    Family("outlast_notifications_acknowledged_total", "counter",
           "Notifications that have arrived.", (), "notices_acked"),
    Family("outlast_notification_delay_seconds", "histogram",
           "From the end of the task until its notification was pushed.", (), "notice_delay"),
    Family("outlast_webhook_deliveries_total", "counter", "Attempts at delivering to webhooks.",
           ("outcome",)),
    Family("outlast_http_requests_total", "counter", "Requests, by the route's template.",
           ("route", "method", "status"), of="server"),
    Family("outlast_http_request_duration_seconds", "histogram",
           "Until the answer began: that of a stream comes at once.", ("route", "method"),
           of="server"),
    Family("outlast_http_streams", "gauge", "Streams, sockets and waits that are open.",
           of="server"),
)  # fmt: skip


# Gathering ---------------------------------------------------------------------------------------


async def fleet(app: Outlast) -> Samples:
    """What the whole fleet did, and what there is now."""
    engine = app.engine
    now = await engine.now()
    living = TaskQuery.of(status=tuple(s for s in STATUSES if s not in FINAL))
    totals, counts, users, records, workers, gauges = await asyncio.gather(
        app.publisher.fleet(engine),
        engine.count(TaskQuery(), by=("status", "type", "queue", "lane")),
        engine.count(living, by=("user_id",)),
        engine.get("queue"),
        engine.workers(),
        engine.gauges(),
    )
    paused: Values = {(record.key,): 1 for record in records if is_paused(record)}
    return {
        **_counted(totals),
        **_queues(counts, now),
        "outlast_queue_paused": paused,
        **_users(users),
        **_workers([worker for worker in workers if worker.alive], now),
        **_limits(gauges),
    }


def _counted(totals: Totals) -> Samples:
    families = {family.source: family for family in FAMILIES if family.source}
    # What has no labels is there from the beginning, so that its first increase can be seen.
    found: Samples = {f.name: {} if f.labels else {(): 0.0} for f in families.values()}
    deliveries: Values = {}
    values: dict[str, float | Spread] = {**totals.counts, **totals.spreads}
    for name, value in values.items():
        metric, labels = labels_of(name)
        family = families.get(metric)
        if family is None or len(labels) != len(family.labels):
            continue  # of another release
        found[family.name][labels] = value
        if metric == "attempts" and labels[0] == DELIVERY and isinstance(value, int):
            add(deliveries, (labels[2],), value)
    delays = found["outlast_notification_delay_seconds"]
    if delays == {(): 0.0}:
        delays.clear()
    found["outlast_webhook_deliveries_total"] = deliveries
    return found


def _queues(counts: Sequence[Count], now: Ms) -> Samples:
    sizes: Counter[str] = Counter()
    for count in counts:
        sizes[str(count.by[2])] += count.n
    known = {queue for queue, _ in sizes.most_common(MAX_NAMES)}
    tasks: Values = {}
    depths: Values = {}
    oldest: Values = {}
    for count in counts:
        status, type, queue, lane = map(str, count.by)
        queue = queue if queue in known else OTHER
        add(tasks, (status, type, queue), count.n)
        if status == "ready":
            add(depths, (queue, lane), count.n)
            age = max(now - (count.oldest_at or now), 0) / 1_000
            oldest[queue,] = max(age, _number(oldest.get((queue,))))
    return {
        "outlast_tasks": tasks,
        "outlast_queue_depth": depths,
        "outlast_queue_oldest_seconds": oldest,
    }


def _users(counts: Sequence[Count]) -> Samples:
    active = [count.n for count in counts if count.by[0] is not None]
    return {
        "outlast_users_active": {(): len(active)},
        "outlast_user_tasks_max": {(): max(active, default=0)},
    }


def _workers(alive: Sequence[WorkerView], now: Ms) -> Samples:
    late = max((now - worker.seen_at for worker in alive), default=0)
    return {
        "outlast_workers": {(): len(alive)},
        "outlast_worker_slots": {(): sum(worker.info.slots for worker in alive)},
        "outlast_worker_slots_busy": {(): sum(worker.running for worker in alive)},
        "outlast_worker_heartbeat_delay_seconds": {(): max(late, 0) / 1_000},
    }


def _limits(gauges: Sequence[GaugeView]) -> Samples:
    """By definition, for a family such as `user:*` may have a key for every user."""
    used: Values = {}
    waiting: Values = {}
    circuits: Values = {}
    for gauge in gauges:
        if gauge.limit is None:
            continue
        limit = Limit.from_json(msgspec.json.decode(gauge.limit))
        add(used, (limit.key,), gauge.used)
        add(waiting, (limit.key,), gauge.waiting)
        if limit.trip is not None:
            add(circuits, (limit.key, gauge.circuit), 1)
    return {
        "outlast_limit_used": used,
        "outlast_limit_waiting": waiting,
        "outlast_limit_circuits": circuits,
    }


def add(values: Values, labels: Labels, n: float) -> None:
    values[labels] = _number(values.get(labels)) + n


def _number(value: float | Spread | None) -> float:
    return value if isinstance(value, int | float) else 0


# Writing -----------------------------------------------------------------------------------------


def text(samples: Mapping[str, Values]) -> str:
    """The text format of Prometheus."""
    lines: list[str] = []
    for family in FAMILIES:
        values = samples.get(family.name)
        if values is None:
            continue
        lines.append(f"# HELP {family.name} {_escaped(family.help)}")
        lines.append(f"# TYPE {family.name} {family.kind}")
        for labels, value in sorted(values.items()):
            pairs = list(zip(family.labels, labels, strict=True))
            if isinstance(value, list):
                lines += _histogram(family.name, pairs, value)
            else:
                lines.append(f"{family.name}{_braces(pairs)} {value:.15g}")
    return "\n".join(lines) + "\n"


def _histogram(name: str, pairs: list[tuple[str, str]], spread: Spread) -> Iterable[str]:
    seen = 0
    bounds = (*(f"{bound / 1_000:g}" for bound in BOUNDS_MS), "+Inf")
    for bound, n in zip(bounds, spread[:-1], strict=True):
        seen += n
        yield f"{name}_bucket{_braces([*pairs, ('le', bound)])} {seen}"
    yield f"{name}_sum{_braces(pairs)} {spread[-1] / 1_000:.15g}"
    yield f"{name}_count{_braces(pairs)} {seen}"


def _braces(pairs: Sequence[tuple[str, str]]) -> str:
    told = ",".join(
        f'{name}="{_escaped(value).replace(chr(34), chr(92) + chr(34))}"' for name, value in pairs
    )
    return f"{{{told}}}" if told else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n")
