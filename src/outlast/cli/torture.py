"""`outlast torture`: an engine and its workers under faults, and a judge of what is left."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Final

import typer

from outlast.cli.output import emit, facts, note, say, table
from outlast.cli.settings import JsonFlag
from outlast.core.errors import BadInput

if TYPE_CHECKING:
    from outlast.torture.report import Report
    from outlast.torture.run import Progress

PLAIN_S: Final = 5.0  # how often a log gets a line about how far it is


def torture(
    engine: Annotated[
        str,
        typer.Option("--engine", metavar="URL", envvar="OUTLAST_URL", show_default=False,
                     help="The engine; what is in it stays as it is."),
    ],
    tasks: Annotated[int, typer.Option("--tasks", min=100, help="How many tasks.")] = 20_000,
    faults: Annotated[int, typer.Option("--faults", min=1, help="How many faults.")] = 30,
    kinds: Annotated[
        str | None,
        typer.Option("--kinds", metavar="A,B", show_default=False,
                     help="Only these faults; else all that are possible here."),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option("--seed", show_default=False, help="The load and the faults of another run."),
    ] = None,
    workers: Annotated[
        int, typer.Option("--workers", min=2, help="Worker processes, in two groups.")
    ] = 4,
    lease: Annotated[
        str, typer.Option("--lease", metavar="DURATION", help="The lease of the workers.")
    ] = "2s",
    server: Annotated[
        str | None,
        typer.Option("--server", metavar="CMD", show_default=False,
                     help="Starts the engine's server in the foreground; it will be killed."),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option("--seconds", metavar="MAX", show_default=False,
                     help="No new fault after this long."),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option("--report", metavar="FILE", show_default=False,
                     help="Write the report as JSON, with the history of each violation."),
    ] = None,
    json: JsonFlag = False,
) -> None:  # fmt: skip
    """Kill, pause and cut off real workers on this engine, and prove that nothing is lost.

    It works in a namespace of its own, which it removes. Exit code 1: a promise was broken, or
    something that had to happen did not.
    """
    import asyncio
    import logging

    import msgspec

    from outlast.core.durations import to_ms
    from outlast.torture.run import Settings
    from outlast.torture.run import torture as run

    lease_ms = to_ms(lease)
    if lease_ms < 1_000:
        raise BadInput(f"--lease {lease}: give at least 1s.")
    settings = Settings(
        url=engine,
        tasks=tasks,
        faults=faults,
        kinds=tuple(kind.strip() for kind in kinds.split(",")) if kinds else (),
        seed=seed,
        workers=workers,
        server=server,
        seconds=seconds,
        lease_ms=lease_ms,
    )
    # What drivers say about a server that we have just killed is no news.
    logging.getLogger().addHandler(logging.NullHandler())
    made = asyncio.run(run(settings, _teller()))
    if report is not None:
        report.write_bytes(msgspec.json.format(msgspec.json.encode(made), indent=2))
    if json:
        emit(msgspec.to_builtins(made))
    else:
        _show(made)
    raise typer.Exit(0 if made.passed else 1)


def _teller() -> Callable[[Progress], None]:
    """A line that is written over on a terminal, and now and then a line in a log."""
    told_at = 0.0

    def tell(progress: Progress) -> None:
        nonlocal told_at
        line = (
            f"{progress.seconds:5.0f} s  fault {progress.fault}/{progress.faults}  "
            f"{progress.ended} of {progress.tasks} tasks over  {progress.doing}"
        )
        if sys.stderr.isatty():
            typer.echo(f"\r\x1b[K{line}", err=True, nl=progress.doing == "judging")
        elif monotonic() - told_at >= PLAIN_S:
            told_at = monotonic()
            note(line)

    return tell


def _show(report: Report) -> None:
    states = ", ".join(f"{n} {state}" for state, n in sorted(report.states.items()))
    facts(
        [
            ("engine", f"{report.engine} ({report.durability})"),
            ("tasks", f"{report.tasks}: {states}"),
            ("faults", f"{sum(report.faults.values())} of {len(report.faults)} kinds"),
            ("seed", report.seed),
            ("seconds", report.seconds),
        ]
    )
    rows = []
    for kind, n in sorted(report.faults.items()):
        p50, p99 = report.rerun_ms.get(kind, ("", ""))
        rows.append((kind, n, p50, p99, report.recovery_ms.get(kind, "")))
    say("")
    table(("FAULT", "TIMES", "RERUN P50 MS", "P99", "FIRST CLAIM MS"), rows, "No fault.")
    say("")
    table(("SEEN", "TIMES"), report.seen.items(), "Nothing.")
    say("")
    verdicts = [
        ("ok" if v.holds else "fail", v.id, v.promise, v.checked, v.violations)
        for v in report.verdicts
    ]
    table(("", "", "PROMISE", "CHECKED", "BROKEN"), verdicts, "Nothing was promised.")
    for verdict in report.verdicts:
        if verdict.example is not None:
            say(f"\n{verdict.id}: {verdict.example}", lines=True)
            for line in verdict.history:
                say(f"    {line}")
    for what in report.unseen:
        say(f"\nThis should have happened, and did not: {what}", lines=True)
    say(f"\n{'Passed.' if report.passed else 'FAILED.'} Its namespace is removed.", lines=True)
