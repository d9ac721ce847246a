"""The `outlast` command: its parts, and the one place where an error becomes an exit code.

Whatever is heavy is imported inside the commands: `outlast --help` answers within 250 ms.
"""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper
from typing import Final

import typer

from outlast.cli import (
    admin,
    approvals,
    bench,
    bridge,
    demo,
    dlq,
    doctor,
    engine,
    enqueue,
    init,
    keys,
    mcp,
    metrics,
    run,
    schedules,
    tasks,
    top,
    torture,
    usage,
    workflows,
)
from outlast.cli.settings import local
from outlast.core import errors
from outlast.core.errors import OutlastError
from outlast.core.text import clean

EXIT_CODES: Final[dict[type[OutlastError], int]] = {
    errors.TaskDead: 1,
    errors.TaskCancelled: 1,
    errors.NotFound: 3,
    errors.EngineDown: 4,
    errors.EngineFull: 4,
    errors.WaitTimeout: 124,
}
"""Every other error of ours says that what was asked is wrong: 2, as for wrong usage."""
UNEXPECTED: Final = 70  # EX_SOFTWARE: the fault is ours

app = typer.Typer(
    name="outlast",
    help="Durable tasks for AI applications: work that outlasts the process that asked for it.",
    epilog="Start with: outlast dev",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # help drawn by rich takes 100 ms longer
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.command()(init.init)
app.command()(demo.demo)
app.command()(local(run.dev))
app.command()(local(run.serve))
app.command()(local(run.worker))
app.command(hidden=True)(run.describe)
app.command()(enqueue.enqueue)
app.add_typer(tasks.app, name="tasks")
app.add_typer(dlq.app, name="dlq")
app.add_typer(workflows.app, name="workflows")
app.add_typer(schedules.app, name="schedules")
app.add_typer(approvals.app, name="approvals")
app.add_typer(admin.queues, name="queues")
admin.queues.command("metrics")(metrics.queues_metrics)
app.add_typer(admin.limits, name="limits")
app.command()(usage.usage)
app.command()(mcp.mcp)
app.command()(local(bridge.bridge))
app.add_typer(usage.budgets, name="budgets")
app.add_typer(admin.workers, name="workers")
app.command()(top.top)
app.add_typer(keys.app, name="keys")
app.command()(local(admin.migrate))
app.command()(local(doctor.doctor))
app.command()(local(bench.bench))
app.command()(torture.torture)
app.add_typer(engine.app, name="engine")
app.command()(admin.openapi)
app.command()(admin.version)


def main() -> None:
    """Run the command line; every failure is one sentence and an exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a terminal that cannot show a character is no error
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
    except Exception as problem:
        if os.environ.get("OUTLAST_DEBUG") == "1":
            raise
        if isinstance(problem, OutlastError):
            typer.echo(f"outlast: {clean(str(problem))}", err=True)
        else:
            told = clean(f"{type(problem).__name__}: {problem}")
            typer.echo(
                f"outlast: this should not happen: {told} (OUTLAST_DEBUG=1 shows where)", err=True
            )
        sys.exit(exit_code(problem))


def exit_code(problem: Exception) -> int:
    if not isinstance(problem, OutlastError):
        return UNEXPECTED
    return next((code for kind, code in EXIT_CODES.items() if isinstance(problem, kind)), 2)
