"""The types that every app has: work of Outlast's own that is done as tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from outlast import escalation as escalations
from outlast import saga, schedules, webhooks
from outlast.context import Context
from outlast.core.model import TaskQuery, Term
from outlast.escalation import Escalation
from outlast.handler import Handler
from outlast.steps import MAX_BUDGET, UNDO_TYPE
from outlast.workflow import ESCALATION, GATE, MAP
from outlast.workflow import TYPE as WORKFLOW

if TYPE_CHECKING:
    from outlast.app import Outlast

BULK: Final = "outlast.bulk"


def builtins(app: Outlast) -> dict[str, Handler[..., Any]]:
    """The handlers, by type."""

    async def bulk(
        ctx: Context, action: str, terms: list[object], rate: str | None = None
    ) -> dict[str, int]:
        """Change many tasks. A second attempt goes on: what was changed no longer fits."""
        from outlast import ops

        query = TaskQuery(terms=msgspec.convert(terms, tuple[Term, ...]))
        matched = await ops.matching(app, action, query)

        async def tell(changed: int) -> None:
            await ctx.progress(min(100, 100 * changed / max(matched, 1)), f"{changed:,} changed")

        return {"changed": await ops.bulk(app, action, query, rate=rate, tell=tell)}

    async def webhook(webhook: str, host: str, message: str, body: str) -> dict[str, int]:
        """Deliver one message to one subscriber."""
        return await webhooks.deliver(app.engine, webhook, message, body.encode())

    async def schedule(ctx: Context, name: str) -> None:
        """Fire what is due of one schedule."""
        await schedules.fire(app, ctx, name)

    async def workflow(
        ctx: Context, name: str, last: list[tuple[str, str]], begin: str | None = None
    ) -> Any:
        """The end of a workflow: its result, or undoing it. `begin` is there if it is a part."""
        return await saga.end(app, ctx, last, is_part=begin is not None)

    async def map(
        ctx: Context,
        type: str,
        over: list[Any],
        item: str,
        fixed: dict[str, Any],
        lenient: bool,
        options: dict[str, Any] = {},  # noqa: B006  # as in JSON
    ) -> list[Any]:
        """A task for each item."""
        told = [{**fixed, item: one} for one in over]
        return await saga.fan_out(app, ctx, type, told, options, lenient=lenient)

    async def undo(ctx: Context, task: str) -> int:
        """When a task is over: undo its steps, or let them be."""
        return await saga.undo_steps(app, ctx, task)

    async def escalation(ctx: Context, workflow: str, rules: list[Escalation]) -> None:
        """Looks after a workflow, and does what its rules say."""
        await escalations.watch(app, ctx, workflow, rules)

    async def gate() -> None:
        """What a large workflow waits behind until all of it is there."""

    made = (
        app.builtin(BULK, bulk, timeout="1h"),
        app.builtin(
            webhooks.DELIVERY,
            webhook,
            retry=webhooks.SCHEDULE,
            max_attempts=webhooks.ATTEMPTS,
            limits=webhooks.gate_of,
            search=["webhook"],
            followed=False,
        ),
        # Without budgets: a schedule neither fails nor is lost for good.
        app.builtin(
            schedules.TYPE,
            schedule,
            retry="5s 30s 2m",
            max_attempts=MAX_BUDGET,
            max_losses=MAX_BUDGET,
            followed=False,
        ),
        app.builtin(WORKFLOW, workflow, max_losses=MAX_BUDGET),
        app.builtin(ESCALATION, escalation, max_losses=MAX_BUDGET, followed=False),
        app.builtin(GATE, gate, max_losses=MAX_BUDGET, followed=False),
        app.builtin(MAP, map, max_losses=MAX_BUDGET),
        app.builtin(UNDO_TYPE, undo, max_losses=MAX_BUDGET, followed=False),
    )
    return {handler.type: handler for handler in made}
