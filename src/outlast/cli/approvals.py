"""`outlast approvals …`: what tasks ask people, and the answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from outlast.cli.enqueue import text_flag
from outlast.cli.output import emit, note, say, table
from outlast.cli.settings import JsonFlag, Where, somewhere
from outlast.cli.tasks import Id, SessionFlag, TypeFlag, UserFlag, WorkflowFlag, value_of

if TYPE_CHECKING:
    from outlast.cli.operations import Operations

app = typer.Typer(help="Approvals: open questions of tasks, and answers.", no_args_is_help=True)


@app.command("ls")
@somewhere
def ls(
    where: Where,
    type: TypeFlag = None,
    session: SessionFlag = None,
    user: UserFlag = None,
    workflow: WorkflowFlag = None,
    cursor: Annotated[str | None, text_flag("--cursor", "Where the last page ended.")] = None,
    json: JsonFlag = False,
) -> None:
    """List open questions, with the action that is proposed."""

    async def read(there: Operations) -> None:
        import msgspec

        page = await there.approval_page(
            type=type, session_id=session, user_id=user, workflow_id=workflow, cursor=cursor
        )
        if json:
            emit(page)
            return
        table(
            ("ID", "TYPE", "QUESTION", "ACTION", "UNTIL"),
            ((a.task_id, a.type, a.question,
              None if a.action is None else msgspec.json.encode(a.action).decode()[:120],
              a.deadline) for a in page.items),
            "Nobody is asked anything.",
        )  # fmt: skip
        if page.next is not None:
            note(f"There are more: --cursor {page.next}")

    where.do(read)


@app.command("answer")
@somewhere
def answer(
    where: Where,
    id: Id,
    said: Annotated[
        str, typer.Argument(metavar="ANSWER", show_default=False, help="JSON, else taken as text.")
    ],
    json: JsonFlag = False,
) -> None:
    """Answer what a task asks now."""

    async def work(there: Operations) -> None:
        task = await there.respond(id, value_of(said))
        if json:
            emit(task)
        else:
            say(f"{task.id}  {task.status}")

    where.do(work)
