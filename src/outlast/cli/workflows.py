"""`outlast workflows …`: graphs of tasks: handed over, looked at, cancelled, taken up again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from outlast.cli.enqueue import object_of, text_flag
from outlast.cli.output import age, emit, facts, in_percent, note, say, table
from outlast.cli.settings import JsonFlag, Where, somewhere
from outlast.cli.tasks import SessionFlag, TagFlag, UserFlag
from outlast.core.errors import BadInput

if TYPE_CHECKING:
    from outlast.cli.operations import Operations
    from outlast.http.schemas import Workflow, WorkflowItem, WorkflowNode

app = typer.Typer(help="Workflows: list them, look at one, cancel it, take it up again.",
                  invoke_without_command=True)  # fmt: skip

Id = Annotated[str, typer.Argument(metavar="ID", help="The workflow's id.", show_default=False)]
FromFlag = Annotated[str | None, text_flag("--from", "A node, by name or id.", "NODE")]


@app.callback()
@somewhere
def default(where: Where, context: typer.Context, json: JsonFlag = False) -> None:
    """Workflows: list them, look at one, cancel it, take it up again. Without a command: list the
    newest."""
    if context.invoked_subcommand is None:
        _ls(where, json=json)


@app.command("ls")
@somewhere
def ls(
    where: Where,
    status: Annotated[
        str | None, text_flag("--status", "running, dead, undone, …; several by commas.")
    ] = None,
    session: SessionFlag = None,
    user: UserFlag = None,
    tag: TagFlag = None,
    limit: Annotated[int, typer.Option("--limit", help="At most this many, up to 500.")] = 50,
    cursor: Annotated[str | None, text_flag("--cursor", "Where the last page ended.")] = None,
    json: JsonFlag = False,
) -> None:
    """List workflows, newest first."""
    _ls(where, json=json, status=status, session_id=session, user_id=user, tag=tag, limit=limit,
        cursor=cursor)  # fmt: skip


def _ls(where: Where, *, json: bool, **filters: Any) -> None:
    async def read(there: Operations) -> None:
        from outlast.client.wire import ms_of

        page = await there.workflow_page(**filters)
        if json:
            emit(page)
            return
        now = await there.now()
        table(
            ("ID", "NAME", "STATUS", "DONE", "TASKS", "AGE", ""),
            ((w.id, w.name, w.status, in_percent(w.percent), sum(w.counts.values()),
              age(now - ms_of(w.created_at)), "" if w.error is None else w.error.message[:120])
             for w in page.items),
            "No workflow fits.",
        )  # fmt: skip
        if page.next is not None:
            note(f"There are more: --cursor {page.next}")

    where.do(read)


@app.command("show")
@somewhere
def show(where: Where, id: Id, json: JsonFlag = False) -> None:
    """Show a workflow with its nodes, and what each comes after."""

    async def read(there: Operations) -> None:
        flow = await there.workflow(id)
        if json:
            emit(flow)
        else:
            _record(flow)

    where.do(read)


def _record(flow: Workflow) -> None:
    import msgspec

    facts([
        ("id", flow.id),
        ("name", flow.name),
        ("status", flow.status),
        ("done", f"{in_percent(flow.percent)} of {sum(flow.counts.values()):,}"),
        ("origin", flow.origin),
        ("session_id", flow.session_id),
        ("user_id", flow.user_id),
        ("created_at", flow.created_at),
        ("completed_at", flow.completed_at),
        ("error", None if flow.error is None else flow.error.message),
        ("result", None if flow.result is None else msgspec.json.encode(flow.result).decode()),
    ])  # fmt: skip
    say("")
    names = {node.id: node.name for node in flow.nodes}
    table(
        ("NODE", "TYPE", "STATUS", "TRY", "AFTER", "ID", ""),
        (_node(node, names) for node in flow.nodes),
        "",
    )
    if flow.truncated:
        note(f"There are more: outlast tasks ls --workflow {flow.id}")


def _node(node: WorkflowNode, names: dict[str, str]) -> tuple[object, ...]:
    after = ", ".join(names.get(up, up) for up in node.after)
    error = None if node.error is None else f"{node.error.type}: {node.error.message}"[:120]
    kind = "" if node.kind == "node" else f" ({node.kind})"
    tries = f"{node.attempt}/{node.max_attempts}"
    return node.name + kind, node.type, node.status, tries, after, node.id, error or node.reason


@app.command("enqueue")
@somewhere
def enqueue(
    where: Where,
    graph: Annotated[
        str,
        typer.Argument(
            metavar="JSON|@FILE|-", show_default=False,
            help='As in {"name": "ingest", "nodes": [{"name": "page", "type": "fetch"}]}.',
        ),
    ],
    json: JsonFlag = False,
) -> None:  # fmt: skip
    """Hand over a workflow, whole or not at all; the graph is that of POST /workflows."""
    told = object_of(graph, "The graph")
    name, nodes = told.pop("name", None), told.pop("nodes", None)
    if not isinstance(name, str) or not isinstance(nodes, list):
        raise BadInput('The graph needs a name and a list of nodes, as {"name": …, "nodes": […]}.')

    async def work(there: Operations) -> None:
        made = await there.enqueue_workflow(name, nodes, **told)  # type: ignore[arg-type]  # checked there
        if json:
            emit(made)
        else:
            say(made.id)

    where.do(work, with_app=True)


@app.command("cancel")
@somewhere
def cancel(
    where: Where,
    id: Id,
    reason: Annotated[str, typer.Option("--reason", help="Kept in the record.")] = "cancelled",
    node: FromFlag = None,
    json: JsonFlag = False,
) -> None:
    """Stop a workflow and undo what it did; with --from one node, and what comes after it."""

    async def work(there: Operations) -> None:
        _changed(await there.cancel_workflow(id, reason, node=node), json=json)

    where.do(work)


@app.command("retry")
@somewhere
def retry(where: Where, id: Id, node: FromFlag = None, json: JsonFlag = False) -> None:
    """Go on where it died. With --from run it again from a node, as a new workflow."""

    async def work(there: Operations) -> None:
        _changed(await there.retry_workflow(id, node=node), json=json)

    where.do(work, with_app=node is not None)


def _changed(flow: WorkflowItem, *, json: bool) -> None:
    if json:
        emit(flow)
    else:
        say(f"{flow.id}  {flow.status}")
