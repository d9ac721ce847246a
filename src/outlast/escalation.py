"""Escalation: what is to happen when a workflow goes wrong or takes too long.

Rules are kept by one task of type `outlast.escalation`, enqueued with the graph, which looks how
the workflow stands, and sleeps in between: until the moment when it becomes too old, or, where
failures count, a while that grows with the age of the workflow. What a rule enqueues and tells is
stored together with the fact that it has fired, so each fires once. It ends with the workflow; one
that is taken up again gets another such task, for the rules that have not fired, and its age counts
from then.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from outlast import saga
from outlast.context import Context
from outlast.core.codec import dumps, loads
from outlast.core.durations import show_ms, to_ms
from outlast.core.errors import BadInput, Conflict
from outlast.core.ids import id_for
from outlast.core.model import NewEvent, Reprioritize, Task, TaskId, TaskQuery, Term
from outlast.core.redact import Hidden
from outlast.core.secret import Path
from outlast.core.states import FINAL, Ms
from outlast.options import Priority, name_of, priority_of
from outlast.steps import Wait
from outlast.stream import find
from outlast.workflow import ESCALATION
from outlast.workflow import TYPE as WORKFLOW

if TYPE_CHECKING:
    from outlast.app import Outlast
    from outlast.handler import Handler

MAX_RULES: Final = 20
MAX_WORDS: Final = 500
LOOK_MS: Final = 1_000
"""How soon it looks again, at first: a twentieth of the workflow's age, within these two."""
LOOK_MOST_MS: Final = 30_000
_SOME: Final = 200
_FAILED: Final = ("failed", "timed_out", "stalled")


class Spawn(Struct, frozen=True, forbid_unknown_fields=True):
    """A task to enqueue."""

    type: str
    payload: dict[str, Any] = {}


class Escalation(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A rule: when one thing has happened in a workflow, something is done about it, once.

    `failures=3` attempts have failed, `dead=1` tasks have died, each `of=` a type or of all; or the
    workflow is older than `age`. Then its tasks that wait get a `priority`, a task is enqueued
    (`spawn`), the session is told (`notify`), the workflow is cancelled (`stop`).
    """

    failures: int | None = None
    dead: int | None = None
    age: str | float | None = None
    of: str | None = None
    priority: Priority | None = None
    spawn: Spawn | None = None
    notify: str | None = None
    stop: bool = False

    def __post_init__(self) -> None:
        counts = [n for n in (self.failures, self.dead) if n is not None]
        if len(counts) + (self.age is not None) != 1:
            raise BadInput("escalate: give one of failures, dead and age.", field="escalate")
        if any(n < 1 for n in counts) or (self.age is not None and to_ms(self.age) <= 0):
            raise BadInput("escalate: a number from 1 on, or an age, is needed.", field="escalate")
        if self.of is not None and self.age is not None:
            raise BadInput("escalate: of= says whose failures; an age has none.", field="escalate")
        if self.priority is None and self.spawn is None and self.notify is None and not self.stop:
            raise BadInput(
                "escalate: say what is to happen: priority, spawn, notify or stop.",
                field="escalate",
            )
        if self.priority is not None:
            priority_of(self.priority)
        if self.of is not None:
            name_of(self.of, "of")
        if self.notify is not None and not 0 < len(self.notify) <= MAX_WORDS:
            raise BadInput(f"notify: 1 to {MAX_WORDS} characters.", field="escalate")

    def __str__(self) -> str:
        if self.age is not None:
            return f"older than {show_ms(to_ms(self.age))}"
        n, what = (self.failures, "failures") if self.failures else (self.dead, "dead")
        return f"{n} {what}" + (f" of {self.of}" if self.of else "")


async def check(app: Outlast, rules: Sequence[Escalation]) -> None:
    """Refuse what could not be enqueued when it is needed."""
    if len(rules) > MAX_RULES:
        raise BadInput(f"escalate: at most {MAX_RULES} rules.", field="escalate")
    for rule in rules:
        if rule.spawn is not None:
            if rule.spawn.type in app.builtins:
                told = f"escalate: {rule.spawn.type} is Outlast's own and not enqueued by others."
                raise BadInput(told, field="escalate")
            await app.prepare(rule.spawn.type, rule.spawn.payload)


def keeper(app: Outlast, rules: Sequence[Escalation]) -> Handler[..., Any]:
    """What keeps the rules. They are secret where the payloads of what they enqueue are."""
    hidden: list[Path] = []
    for n, rule in enumerate(rules):
        handler = None if rule.spawn is None else app.find(rule.spawn.type)
        if handler is not None:
            at = ("rules", str(n), "spawn", "payload")
            hidden += [(*at, *path) for path in handler.hidden.payload]
    return app.builtins[ESCALATION].hiding(Hidden(tuple(hidden)))


async def rules_of(app: Outlast, workflow: TaskId) -> list[Escalation]:
    """The rules that a workflow was enqueued with."""
    watchers = [task async for task in saga.all_of(app, _watchers(workflow))]
    return _rules(watchers[-1]) if watchers else []


async def resume(app: Outlast, workflow: TaskId) -> None:
    """It was taken up again: see that the rules that have not fired are kept."""
    watchers = [task async for task in saga.all_of(app, _watchers(workflow))]
    if not watchers or watchers[0].state not in FINAL:
        return
    last = watchers[0]
    fired = {step.key for step in (await app.engine.memory(last.id)).steps}
    left = [rule for n, rule in enumerate(_rules(last)) if f":{_rule(n)}" not in fired]
    if left:
        made = keeper(app, left).call(workflow=workflow, rules=left).task
        owner = {"session_id": last.session_id, "user_id": last.user_id, "parent_id": workflow}
        await app.engine.enqueue([replace(made, **owner)])


def _watchers(workflow: TaskId) -> TaskQuery:
    """The tasks that have kept its rules, the newest first."""
    return TaskQuery.of(parent_id=workflow, type=ESCALATION)


def _rules(watcher: Task) -> list[Escalation]:
    return msgspec.convert(loads(watcher.payload)["rules"], list[Escalation])


def _rule(n: int) -> str:
    """Under this name is remembered that it has fired."""
    return f"rule {n}"


async def watch(app: Outlast, ctx: Context, workflow: TaskId, rules: Sequence[Escalation]) -> None:
    """The body of `outlast.escalation`: ends with the workflow."""
    end = await find(app.engine, workflow)
    if end is None:
        return
    over = end.state in FINAL
    for n, rule in enumerate(rules):
        if ctx.suspended_before(_rule(n)) or not await _holds(app, ctx, rule, end):
            continue
        await _act(app, rule, end)
        ctx.suspend_once(_rule(n), await _told(app, ctx, n, rule, end))
    if not over:
        ctx.suspend(Wait(until=_next(rules, ctx.created_at, ctx.now)))


async def _holds(app: Outlast, ctx: Context, rule: Escalation, end: Task) -> bool:
    if rule.age is not None:
        until = ctx.now if end.completed_at is None else end.completed_at
        return until - ctx.created_at >= to_ms(rule.age)
    if rule.dead is not None:
        query = TaskQuery(terms=_of(rule, end, Term("status", ("dead",))))
        return sum(count.n for count in await app.engine.count(query)) >= rule.dead
    failures = 0
    async for task in _failing(app, rule, end):
        entries = msgspec.json.decode(task.attempts)
        failures += sum(entry["outcome"] in _FAILED for entry in entries)
        if failures >= (rule.failures or 0):
            return True
    return False


async def _failing(app: Outlast, rule: Escalation, end: Task) -> AsyncIterator[Task]:
    """Tasks that have failed: they are in the retry lane, or have left it to wait for something
    (what failed is still told of them), or are dead since their first attempt."""
    seen = set[TaskId]()
    failed = Term("fingerprint", ("",), ">")
    for term in (Term("lane", ("retry",)), failed, Term("status", ("dead",))):
        query = TaskQuery(terms=_of(rule, end, term), limit=_SOME)
        while True:
            page = await app.engine.tasks(query)
            for task in page.items:
                if task.id not in seen:
                    seen.add(task.id)
                    yield task
            if page.next is None:
                break
            query = replace(query, cursor=page.next)


def _of(rule: Escalation, end: Task, term: Term) -> tuple[Term, ...]:
    """Tasks of the workflow, but for the one at its end, that the rule is about."""
    whose = Term("type", (rule.of,)) if rule.of else Term("type", (WORKFLOW,), negated=True)
    return Term("workflow_id", (end.id,)), whose, term


async def _act(app: Outlast, rule: Escalation, end: Task) -> None:
    """What may be done twice."""
    if rule.priority is not None:
        change = Reprioritize(priority_of(rule.priority))
        query = TaskQuery.of(workflow_id=end.id, status=saga.LIVING, limit=_SOME)
        while True:
            page = await app.engine.tasks(query)
            await app.engine.alter([task.id for task in page.items], change)
            if page.next is None:
                break
            query = replace(query, cursor=page.next)
    if rule.stop:
        try:
            await saga.cancel(app, end.id, f"escalated: {rule}")
        except Conflict:  # it is over
            return


async def _told(app: Outlast, ctx: Context, n: int, rule: Escalation, end: Task) -> Wait:
    """What is stored with the fact that it fired: the event, and the task to enqueue."""
    spawn, limits = [], list[dict[str, object]]()
    if rule.spawn is not None:
        call = await app.prepare(rule.spawn.type, rule.spawn.payload)
        id = id_for(ctx.created_at, f"{ctx.task_id} rule {n}")
        owner = {"session_id": end.session_id, "user_id": end.user_id, "parent_id": end.id}
        spawn.append(replace(call.task, id=id, **owner))
        limits += [limit.to_json() for limit in call.limits]
    name = msgspec.json.decode(end.payload)["name"]
    data = {"workflow": end.id, "name": name, "rule": str(rule), "notify": rule.notify}
    event = NewEvent(kind="escalation", data=dumps(data), task_id=ctx.task_id)
    return Wait(until=ctx.now, spawn=tuple(spawn), limits=tuple(limits), events=(event,))


def _next(rules: Sequence[Escalation], since: Ms, now: Ms) -> Ms:
    """When to look again."""
    ages = [since + to_ms(rule.age) for rule in rules if rule.age is not None]
    coming = [at for at in ages if at > now]
    if len(ages) < len(rules) or not coming:
        pause_ms = (now - since) // 20
        coming.append(now + min(max(pause_ms, LOOK_MS), LOOK_MOST_MS))
    return min(coming)
