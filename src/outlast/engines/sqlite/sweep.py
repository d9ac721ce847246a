"""sweep: what nobody's turn takes care of. Bounded, idempotent, safe from everywhere at once."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final

from outlast.core.limits import MAX_PERIOD_MS
from outlast.core.model import Swept
from outlast.core.states import FINAL
from outlast.engines.sqlite.alter import forget
from outlast.engines.sqlite.db import sql
from outlast.engines.sqlite.ends import finish, put_back, settle
from outlast.engines.sqlite.exchange import unpark_due
from outlast.engines.sqlite.records import limit_changed
from outlast.engines.sqlite.tx import EXCHANGE, Held, Tx, decode, encode, limits_of

SWEEP: Final = sql("sweep.sql")
RESCUE_JITTER_MS: Final = 1_000
"""Rescued tasks come back spread over up to this span, 10 ms each: no stampede."""
STALLED: Final = encode(
    {
        "code": "stalled",
        "type": "Stalled",
        "message": "The worker that ran this attempt was lost.",
        "details": None,
        "traceback": None,
    }
)


def sweep(tx: Tx, budget: int, gone: Sequence[str]) -> Swept:
    rescued, died, workers, cut = _evict(tx, budget, gone)
    unparked = unpark_due(tx, budget)
    expired = _expire(tx, budget)
    overdue = _mark_overdue(tx, budget)
    settled = _settle(tx, budget)
    forgotten = _retain(tx, budget)
    tx.execute(SWEEP["old_reservations"], (tx.now, budget))
    for kind, key, value in tx.rows(SWEEP["old_records"], (tx.now, budget)):
        if kind == "limit":
            limit_changed(tx, key, value)
    _recompute_gauges(tx, budget)
    tx.execute(SWEEP["stale_fair"])
    return Swept(
        rescued=rescued,
        died=died,
        expired=expired,
        overdue=overdue,
        unparked=unparked,
        settled=settled,
        forgotten=forgotten,
        workers=workers,
        more=cut or max(unparked, expired, overdue, settled, forgotten) >= budget,
    )


def _evict(tx: Tx, budget: int, gone: Sequence[str]) -> tuple[int, int, int, bool]:
    """Free the tasks of workers whose lease is over; drop a worker once it holds nothing."""
    rescued = died = workers = 0
    cut = False
    lapsed = [worker for (worker,) in tx.rows(SWEEP["lapsed"], (tx.boot, tx.mono, 100))]
    for worker in dict.fromkeys([*gone, *lapsed]):
        if budget <= 0:
            return rescued, died, workers, True
        rows = tx.rows(EXCHANGE["held_by_worker"], (worker, budget))
        budget -= len(rows)
        for row in rows:
            if _rescue(tx, Held(*row), min(RESCUE_JITTER_MS, 10 * len(rows))):
                rescued += 1
            else:
                died += 1
        if budget <= 0:
            tx.execute(SWEEP["evict"], (worker,))
            cut = True
        else:
            tx.execute(EXCHANGE["drop_worker"], (worker,))
            workers += 1
        tx.topics.add(f"worker:{worker}")
    return rescued, died, workers, cut


def _rescue(tx: Tx, task: Held, spread_ms: int) -> bool:
    """The worker of a running task is lost: again while its loss budget lasts."""
    if task.cancel is not None:
        finish(tx, task, "cancelled", reason=task.cancel, verdict="stalled", lost=True)
        return False
    if task.losses + 1 >= task.max_losses:
        finish(tx, task, "dead", reason="stalled", verdict="stalled", error=STALLED, lost=True)
        return False
    put_back(
        tx,
        task,
        verdict="stalled",
        lane="retry",
        delay_ms=random.randint(1, spread_ms),  # noqa: S311  # jitter, not a secret
        refund=True,
        lost=True,
        error=STALLED,
    )
    return True


def _expire(tx: Tx, budget: int) -> int:
    """Tasks that waited longer than their max_age."""
    rows = tx.rows(SWEEP["expired"], (tx.now, budget))
    for row in rows:
        [task] = tx.held_by_seq([row[0]])
        if task.state == "pending":  # not cancelled by the death of one before it
            finish(tx, task, "dead", reason="expired")
    return len(rows)


def _mark_overdue(tx: Tx, budget: int) -> int:
    rows = tx.rows(SWEEP["overdue"], (tx.now, budget))
    for task in tx.held_by_seq([seq for seq, state in rows if state not in FINAL]):
        tx.log(task, "overdue", {"status": task.state})
    return len(rows)


def _settle(tx: Tx, budget: int) -> int:
    told = 0
    for seq, state in tx.rows(SWEEP["unsettled"], (budget,)):
        if told >= budget:
            break
        tx.execute(SWEEP["settled"], (seq,))
        told += settle(tx, [(seq, state == "completed")], budget - told)
    return told


def _retain(tx: Tx, budget: int) -> int:
    """Records of kind `retention`, key = a final state or `log`: age_ms, count, bytes.

    A task whose unique key is still taken stays: without it the key could not be answered.
    """
    forgotten = 0
    for key, value in tx.rows("select key, value from record where kind = 'retention'"):
        rule: dict[str, Any] = decode(value)
        if key == "log":
            _prune_log(tx, rule, budget)
            continue
        rows: list[Any] = []
        if "age_ms" in rule:
            rows += tx.rows(SWEEP["old"], (key, tx.now - rule["age_ms"], tx.now, budget))
        if "count" in rule:
            rows += tx.rows(SWEEP["beyond"], (key, tx.now, budget, rule["count"]))
        if "bytes" in rule:
            rows += _too_heavy(tx, key, rule["bytes"], budget)
        for seq in {row[0] for row in rows}:
            for task in tx.held_by_seq([seq]):
                forget(tx, task)
                forgotten += 1
    return forgotten


def _too_heavy(tx: Tx, state: str, most: int, budget: int) -> list[tuple[int]]:
    """The oldest of a state, beyond so many bytes of payloads and results."""
    total, beyond = 0, []
    for seq, size in tx.rows(SWEEP["heavy"], (state, tx.now)):
        total += size
        if total > most:
            beyond.append((seq,))
    return beyond[-budget:]


def _prune_log(tx: Tx, rule: dict[str, Any], budget: int) -> None:
    if "age_ms" not in rule:
        return
    last = tx.value(SWEEP["old_events"], (tx.now - rule["age_ms"], budget))
    if last is not None:
        tx.execute(SWEEP["drop_events"], (last,))
        tx.execute(SWEEP["events_pruned"], (last,))


def _recompute_gauges(tx: Tx, budget: int) -> None:
    """Slots are what leases hold: should a gauge ever say otherwise, the leases are right."""
    keys = [key for (key,) in tx.rows(SWEEP["gauges_used"])]
    if keys:
        holders: dict[str, set[str]] = {}
        for task_id, text in tx.rows(SWEEP["leases_with_limits"]):
            for key, _units in limits_of(text):
                holders.setdefault(key, set()).add(task_id)
        for key in keys:
            gauge, held = tx.gauge(key), holders.get(key, set())
            if gauge.used != len(held) or (gauge.probe and gauge.probe not in held):
                gauge.used = len(held)
                gauge.probe = gauge.probe if gauge.probe in held else ""
                tx.open_key(key)
    stale = tx.now - MAX_PERIOD_MS
    tx.execute(SWEEP["idle_gauges"], (stale, tx.now * 1000, tx.now, budget))
