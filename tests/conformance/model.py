"""The semantics of the engine protocol in executable form: plain dicts, no bounds, no indexes.

It takes the same values as an engine and is told the moment (`now`) at which the engine did it.
Where an engine may choose (the jitter of a rescue, a lease that ends in this very millisecond), the
caller passes what was observed, and the model checks that it was allowed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from outlast.core import limits as gate
from outlast.core.limits import Gauge, Limit, resolve
from outlast.core.model import (
    Cancel,
    Change,
    Forget,
    NewTask,
    Outcome,
    Redrive,
    Reprioritize,
    Reschedule,
    Resolve,
    Signal,
    Turn,
)
from outlast.core.states import FINAL, Ms, status_of

JITTER_MS = 30_000
FAILURES = ("failed", "timed_out", "stalled")

T = dict[str, Any]


class Unknown(Exception):
    """An edge to a task that is not there."""


class Model:
    """What an engine holds, and what its verbs do to it."""

    def __init__(self) -> None:
        self.now: Ms = 0
        self.tasks: dict[str, T] = {}
        self.workers: dict[str, dict[str, Any]] = {}
        self.limits: dict[str, Limit] = {}
        self.gauges: dict[str, Gauge] = {}
        self.paused: set[str] = set()
        self.keys: dict[str, str] = {}

    # enqueue -------------------------------------------------------------------------------------

    def enqueue(self, now: Ms, batch: Sequence[NewTask]) -> list[tuple[str, bool]]:
        """Receipts as (id, existing)."""
        self.now = now
        receipts: list[tuple[str, bool]] = []
        fresh: dict[str, NewTask] = {}
        keys = dict(self.keys)
        for new in batch:
            known = new.id in self.tasks or new.id in fresh
            holder = keys.get(new.unique_key) if new.unique_key and not known else None
            receipts.append((holder or new.id, known or holder is not None))
            if not known and holder is None:
                fresh[new.id] = new
                if new.unique_key:
                    keys[new.unique_key] = new.id
        for new in fresh.values():
            if any(up not in self.tasks and up not in fresh for up in new.after):
                raise Unknown
        self.keys = keys
        for new in fresh.values():
            self.tasks[new.id] = self._born(new)
        for new in fresh.values():
            self._start(self.tasks[new.id])
        return receipts

    def _born(self, new: NewTask) -> T:
        due = new.run_at if new.run_at is not None else self.now + new.delay_ms
        return {
            "id": new.id, "queue": new.queue, "lane": new.lane, "priority": new.priority,
            "state": "pending", "parked": "deps", "wake_at": None, "run_at": due, "rank": due,
            "fence": None, "last_fence": None, "worker": None, "cancel": None, "reason": None,
            "attempt": 0, "number": 0, "losses": 0, "max_losses": new.max_losses,
            "limits": new.limits, "unique_key": new.unique_key, "needs": new.needs,
            "edges": dict.fromkeys(new.after, False), "hold": new.hold, "awaits": 0, "inbox": [],
            "steps": [], "followed": new.followed, "streamed": False, "log": [],
        }  # fmt: skip

    def _start(self, task: T) -> None:
        if task["edges"]:
            for up in task["edges"]:
                task["edges"][up] = self.tasks[up]["state"] in FINAL
            self._say(task, "blocked")
            failed = any(self.tasks[up]["state"] in ("dead", "cancelled") for up in task["edges"])
            if failed and task["needs"] == "success":
                self._end(task, "cancelled", "upstream")
            elif all(task["edges"].values()):
                self._place(task, task["run_at"])
            else:
                self._count_edges(task)
        else:
            self._place(task, task["run_at"])
            self._say(task, self.status(task))

    # exchange ------------------------------------------------------------------------------------

    def exchange(self, now: Ms, turn: Turn) -> dict[str, Any]:
        """The deal: leases (ids in order), lost, cancel, evicted."""
        self.now = now
        worker = self.workers.get(turn.worker)
        repeated = worker is not None and turn.token in worker["tokens"]
        lost = [(o.id, o.fence) for o in turn.outcomes if not self._apply(o, repeated)]
        deal: dict[str, Any] = {"leases": [], "lost": lost, "cancel": set(), "evicted": False}
        if worker is None and turn.info is None:
            return deal | {"evicted": True}
        if turn.leaving:
            for task in self.held_by(turn.worker):
                self._put_back(task, "released", refund=True)
            self.workers.pop(turn.worker, None)
            return deal
        worker = self.workers.setdefault(turn.worker, {"tokens": set()})
        worker["until"] = now + turn.lease_ms
        self._unpark(task for task in self.tasks.values() if _due(task, now))
        if repeated:
            deal["leases"] = [
                t["id"] for t in self.held_by(turn.worker) if t["fence"] == turn.token
            ]
            return deal
        if turn.room or turn.outcomes:
            worker["tokens"].add(turn.token)
        deal["leases"] = self._claim(turn)
        deal["cancel"] = {
            (t["id"], t["cancel"]) for t in self.held_by(turn.worker) if t["cancel"] is not None
        }
        return deal

    def _apply(self, outcome: Outcome, repeated: bool) -> bool:
        """Was it accepted?"""
        task = self.tasks.get(outcome.id)
        if task is None:
            return False
        if task["state"] != "running" or task["fence"] != outcome.fence:
            if task["last_fence"] != outcome.fence:
                return False
            return outcome.state == task["state"] if outcome.state in FINAL else repeated
        if repeated:
            return True
        for event in outcome.events:
            task["log"].append(event.kind)
            task["streamed"] |= event.kind == "chunk"
        for step in outcome.steps:
            task["log"].append("step")
            if step.key not in task["steps"]:
                task["steps"].append(step.key)
        for charge in outcome.charges:
            if charge.ok is not None:
                limit = resolve(charge.key, self.limits)
                gate.charge(limit, self.gauge(charge.key), task["id"], charge.ok, self.now)
        for key, pause_ms in outcome.pauses:
            gate.pause(self.gauge(key), self.now + pause_ms)
        stopped = outcome.state == "pending" and task["cancel"] is not None
        awaited = set(outcome.after) if stopped else set()
        born = []
        for child in outcome.spawn:  # in the order of their edges
            if awaited.isdisjoint((child.id, *child.after)):
                born.append(child)
            else:
                awaited.add(child.id)
        if born:
            self.enqueue(self.now, born)
        if outcome.state == "running":
            if outcome.progress is not None:
                task["log"].append("progress")
        elif outcome.state == "pending":
            self._put_back(task, outcome.verdict, outcome.lane, outcome.delay_ms,
                           outcome.refund, outcome=outcome)  # fmt: skip
            task["last_fence"] = outcome.fence
        else:
            task["attempt"] -= outcome.refund
            self._end(task, outcome.state, outcome.reason)
            task["last_fence"] = outcome.fence
        return True

    def _claim(self, turn: Turn) -> list[str]:
        claimed: list[str] = []
        refused: set[str] = set()
        for bounded in (True, False):
            for want in turn.wants:
                room = turn.room - len(claimed)
                if bounded:
                    room = min(room, want.n)
                for task in self.candidates(want.queue, want.lane):
                    if room <= 0:
                        break
                    if self._admitted(task, refused):
                        self._lease(task, turn)
                        claimed.append(task["id"])
                        room -= 1
        return claimed

    def candidates(self, queue: str, lane: str) -> list[T]:
        """Ready or waiting at a limit, in order; nobody of a paused queue."""
        if queue in self.paused:
            return []
        found = [t for t in self.tasks.values() if t["queue"] == queue and t["lane"] == lane]
        found = [t for t in found if t["state"] == "pending" and t["parked"] in (None, "limit")]
        return sorted(found, key=lambda t: (t["priority"], t["rank"], t["id"]))

    def _admitted(self, task: T, refused: set[str]) -> bool:
        for key, units in task["limits"]:
            limit = resolve(key, self.limits)
            if key in refused or gate.admit(limit, self.gauge(key), units, self.now) != 0:
                refused.add(key)
                task["parked"] = "limit"
                return False
        return True

    def _lease(self, task: T, turn: Turn) -> None:
        for key, units in task["limits"]:
            limit = resolve(key, self.limits)
            gate.take(limit, self.gauge(key), task["id"], units, self.now)
        task |= {"state": "running", "parked": None, "fence": turn.token, "worker": turn.worker}
        task["attempt"] += 1
        task["number"] += 1
        self._say(task, "running")

    # alter ---------------------------------------------------------------------------------------

    def alter(self, now: Ms, task_id: str, change: Change) -> str | None:
        """Why it does not apply; None when it does."""
        self.now = now
        task = self.tasks.get(task_id)
        if task is None:
            return "not_found"
        state = task["state"]
        match change:
            case Cancel() if state == "running":
                task["cancel"] = task["reason"] = change.reason
            case Cancel() if state == "pending":
                self._end(task, "cancelled", change.reason)
            case Redrive() if state in ("dead", "cancelled"):
                return self._redrive(task, change.delay_ms)
            case Redrive() if self.status(task) == "retrying":
                self._reschedule(task, self.now + change.delay_ms)
            case Reschedule() if state == "pending" and task["parked"] in (None, "time"):
                self._reschedule(task, self.now + change.delay_ms)
            case Reprioritize() if state == "pending":
                task["priority"] = change.priority
            case Resolve() if state in ("pending", "dead"):
                if state == "dead":
                    self._restore_dependents(task)
                self._end(task, "completed", change.reason)
            case Signal() if state not in FINAL:
                self._signal(task, change.name)
            case Forget() if state != "running":
                self._forget(task)
            case _:
                return "state"
        return None

    def _redrive(self, task: T, delay_ms: int) -> str | None:
        if not self._take_key(task):
            return "unique"
        run_at = self.now + delay_ms
        task |= {"state": "pending", "lane": "retry", "attempt": 0, "losses": 0, "reason": None,
                 "run_at": run_at, "last_fence": None}  # fmt: skip
        if all(task["edges"].values()):
            self._place(task, run_at)
        else:
            task["parked"] = "deps"
            self._count_edges(task)
        task["log"].append(self.status(task))
        self._restore_dependents(task)
        return None

    def _restore_dependents(self, task: T, alive: frozenset[str] = frozenset()) -> None:
        """Those that its end had cancelled wait for it again, unless another one failed too."""
        alive = alive | {task["id"]}
        for down in self._downs(task, done=True):
            states = {up: self.tasks[up]["state"] for up in down["edges"] if up not in alive}
            if down["state"] == "pending" and down["parked"] == "deps":
                down["edges"][task["id"]] = False
                self._count_edges(down)
            elif (
                (down["state"], down["reason"]) == ("cancelled", "upstream")
                and not {"dead", "cancelled"} & set(states.values())
                and self._take_key(down)
            ):
                down["edges"] = {up: states.get(up) in FINAL for up in down["edges"]}
                down |= {"state": "pending", "parked": "deps", "reason": None}
                down["log"].append("blocked")
                self._count_edges(down)
                self._restore_dependents(down, alive)

    def _reschedule(self, task: T, run_at: Ms) -> None:
        task |= {"run_at": run_at, "hold": None}
        self._place(task, run_at)
        self._say(task, self.status(task))

    def _forget(self, task: T) -> None:
        if task["state"] not in FINAL:
            self._end(task, "cancelled", "forgotten")
        del self.tasks[task["id"]]
        for other in self.tasks.values():
            other["edges"].pop(task["id"], None)

    def _signal(self, task: T, name: str) -> None:
        task["inbox"].append(name)
        task["log"].append("signal")
        if task["parked"] == f"signal:{name}" and task["inbox"].count(name) >= task["awaits"]:
            held, task["hold"] = task["hold"] is not None, None
            self._place(task, task["run_at"] if held else self.now)

    # sweep ---------------------------------------------------------------------------------------

    def sweep(
        self, now: Ms, evicted: Iterable[str], due: Collection[str], rescued_at: Mapping[str, Ms]
    ) -> None:
        """With what was observed: evicted workers, tasks that came due, moments of rescue."""
        self.now = now
        for worker in evicted:
            for task in self.held_by(worker):
                self._lose(task, rescued_at.get(task["id"], now))
            self.workers.pop(worker, None)
        self._unpark(self.tasks[task_id] for task_id in due)

    def _lose(self, task: T, run_at: Ms) -> None:
        task["losses"] += 1
        if task["cancel"] is not None:
            task["attempt"] -= 1
            self._end(task, "cancelled", task["cancel"])
        elif task["losses"] >= task["max_losses"]:
            task["attempt"] -= 1
            self._end(task, "dead", "stalled")
        else:
            delay_ms = run_at - self.now
            assert 0 <= delay_ms <= JITTER_MS, f"a rescue was put off by {delay_ms} ms"
            self._put_back(task, "stalled", "retry", delay_ms, True)
        task["last_fence"] = None

    # how an attempt ends -------------------------------------------------------------------------

    def _end(self, task: T, state: str, reason: str | None) -> None:
        self._free(task)
        if task["streamed"] and state != "completed":
            task["log"].append("rollback")
        task |= {"state": state, "parked": None, "wake_at": None, "worker": None, "fence": None,
                 "last_fence": None, "cancel": None, "reason": reason, "streamed": False,
                 "awaits": 0}  # fmt: skip
        task["log"].append(state)
        if self.keys.get(task["unique_key"] or "") == task["id"]:
            del self.keys[task["unique_key"]]
        for down in self._downs(task, done=False):
            down["edges"][task["id"]] = True
            if down["state"] != "pending" or down["parked"] != "deps":
                continue
            if state != "completed" and down["needs"] == "success":
                self._end(down, "cancelled", "upstream")
            elif all(down["edges"].values()):
                self._place(down, down["run_at"])
            else:
                self._count_edges(down)

    def _put_back(
        self, task: T, verdict: str, lane: str | None = None, delay_ms: int = 0,
        refund: bool = False, outcome: Outcome | None = None,
    ) -> None:  # fmt: skip
        task["attempt"] -= refund
        if task["cancel"] is not None:
            self._end(task, "cancelled", task["cancel"])
            return
        self._free(task)
        kept = verdict == "released" and not delay_ms
        run_at = task["run_at"] if kept else self.now + delay_ms
        task |= {"state": "pending", "lane": lane or task["lane"], "run_at": run_at, "rank": run_at,
                 "parked": "time" if delay_ms else None, "wake_at": run_at if delay_ms else None,
                 "worker": None, "fence": None, "hold": None, "awaits": 0}  # fmt: skip
        if outcome is not None and outcome.after:
            task["needs"] = "any"
            task["edges"] |= {up: self.tasks[up]["state"] in FINAL for up in outcome.after}
            if not all(task["edges"].values()):
                task |= {"parked": "deps", "wake_at": None}
                self._count_edges(task)
        elif outcome is not None and outcome.park is not None:
            name = outcome.park.removeprefix("signal:")
            if task["inbox"].count(name) < outcome.awaits:
                task |= {"parked": outcome.park, "awaits": outcome.awaits}
            else:
                task |= {"parked": None, "wake_at": None}
        if task["streamed"]:
            task["log"].append("rollback")
            task["streamed"] = False
        if task["followed"] or verdict in FAILURES:
            task["log"].append(self.status(task))

    def _place(self, task: T, run_at: Ms) -> None:
        """Where a pending task with no upstream left goes."""
        task |= {"parked": None, "wake_at": None, "awaits": 0, "rank": run_at}
        if task["hold"] is not None and task["hold"] not in task["inbox"]:
            task |= {"parked": f"signal:{task['hold']}", "awaits": 1}
        elif run_at > self.now:
            task |= {"parked": "time", "wake_at": run_at}

    def _unpark(self, tasks: Iterable[T]) -> None:
        for task in tasks:
            task |= {"parked": None, "rank": task["wake_at"], "wake_at": None, "awaits": 0}

    # small things --------------------------------------------------------------------------------

    def status(self, task: T) -> str:
        return status_of(task["state"], task["parked"], task["lane"], None, self.now)

    def gauge(self, key: str) -> Gauge:
        return self.gauges.setdefault(key, Gauge(key))

    def held_by(self, worker: str) -> list[T]:
        return [t for t in self.tasks.values() if t["worker"] == worker]

    def _free(self, task: T) -> None:
        if task["state"] == "running":
            for key, _ in task["limits"]:
                gate.free(self.gauge(key), task["id"])

    def _take_key(self, task: T) -> bool:
        key = task["unique_key"]
        return key is None or self.keys.setdefault(key, task["id"]) == task["id"]

    def _downs(self, task: T, done: bool) -> list[T]:
        return [t for t in self.tasks.values() if t["edges"].get(task["id"]) is done]

    def _count_edges(self, task: T) -> None:
        task["awaits"] = list(task["edges"].values()).count(False)

    def _say(self, task: T, status: str) -> None:
        if task["followed"]:
            task["log"].append(status)


def _due(task: T, now: Ms) -> bool:
    return task["wake_at"] is not None and task["wake_at"] <= now
