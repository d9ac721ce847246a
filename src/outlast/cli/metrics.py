"""`outlast queues metrics`: what happened per hour or day, by type and queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from outlast.cli.output import emit, table
from outlast.cli.settings import JsonFlag, Where, somewhere

if TYPE_CHECKING:
    from outlast.cli.operations import Operations
    from outlast.http.schemas import TaskMetric

Span = Literal["hour", "day"]
COLUMNS = (
    "BEGIN", "TYPE", "QUEUE", "ENQUEUED", "COMPLETED", "DEAD", "RETRIED", "ERRORS", "WAIT P95",
    "RUN AVG", "RUN P95",
)  # fmt: skip

ByFlag = Annotated[str, typer.Option("--by", metavar="SPAN", help="hour or day.")]
SinceFlag = Annotated[
    str | None,
    typer.Option("--from", metavar="MOMENT", show_default=False,
                 help="As in 2026-11-16T00:00:00Z; else a day of hours, or thirty days."),
]  # fmt: skip
UntilFlag = Annotated[
    str | None,
    typer.Option("--to", metavar="MOMENT", show_default=False, help="Else until now."),
]


@somewhere
def queues_metrics(
    where: Where,
    by: ByFlag = "day",
    since: SinceFlag = None,
    until: UntilFlag = None,
    json: JsonFlag = False,
) -> None:
    """What happened per hour or day, by type and queue: counts, error rates and times."""

    async def read(there: Operations) -> None:
        rows = await there.history(cast("Span", by), since=since, until=until)
        if json:
            emit({"items": rows, "next": None})
        else:
            table(COLUMNS, map(_row, rows), "Nothing has happened.")

    where.do(read)


def _row(row: TaskMetric) -> tuple[object, ...]:
    rate = row.error_rate
    return (
        row.begin[:16],
        row.type,
        row.queue,
        row.enqueued,
        row.completed,
        row.dead,
        row.retried,
        None if rate is None else f"{rate:.1%}",
        _seconds(row.wait.p95),
        _seconds(row.run.average),
        _seconds(row.run.p95),
    )


def _seconds(value: float | None) -> str | None:
    return None if value is None else f"{value:.3g} s"
