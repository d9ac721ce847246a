"""`outlast demo`: a minute that shows what Outlast is, on the real system."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from outlast.cli.output import console, emit, note, say
from outlast.cli.settings import PORT, JsonFlag
from outlast.core.errors import BadInput

if TYPE_CHECKING:
    from outlast.demo.judge import Summary
    from outlast.demo.show import Moment, Settings

SECONDS: Final = 60.0
INTERRUPTED: Final = 130


def demo(
    headless: Annotated[
        bool, typer.Option("--headless", help="Nobody watches: do not wait, judge, end.")
    ] = False,
    seconds: Annotated[
        float | None,
        typer.Option("--seconds", metavar="N", min=1, show_default=False,
                     help="With --headless: how long it may take; else 60."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="The same seed, the same show.")] = 7,
    engine: Annotated[
        str | None,
        typer.Option("--engine", metavar="URL", show_default=False,
                     help="Play on this engine, beside what is in it; else SQLite, in a file that"
                     " is gone afterwards."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", min=0, max=65535, show_default=False,
                     help=f"The port of the dashboard; else {PORT}, or any if that is taken."),
    ] = None,
    shots: Annotated[
        Path | None,
        typer.Option("--shots", metavar="DIR", show_default=False,
                     help="Write pictures of the dashboard's screens there, by a Chromium that is"
                     " installed and Playwright."),
    ] = None,
    json: JsonFlag = False,
) -> None:  # fmt: skip
    """Watch it work and outlast a crash: streams, limits, a circuit, kill -9, an approval, a
    redrive, all real, with a model that is built in.

    It needs no key and no network, and leaves nothing behind. It ends with a verdict from the log
    and from a ledger outside the engine. Then it stays up until Ctrl-C; with --headless it exits
    with 0 if everything came true, else with 1.
    """
    from outlast.demo.show import Settings, free_port

    if seconds is not None and not headless:
        raise BadInput("--seconds is for --headless: whoever watches ends it with Ctrl-C.")
    settings = Settings(
        engine=engine,
        seed=seed,
        seconds=(seconds or SECONDS) if headless else None,
        port=free_port(PORT) if port is None else port,
        busy=not headless or shots is not None,
    )
    try:
        code = asyncio.run(_play(settings, shots, json=json))
    except asyncio.CancelledError:  # Ctrl-C
        code = INTERRUPTED if headless else 0
    raise typer.Exit(code)


async def _play(settings: Settings, shots: Path | None, *, json: bool) -> int:
    from outlast.demo.shots import browser, shoot
    from outlast.demo.show import stage

    chromium = "" if shots is None else browser()

    me = asyncio.current_task()
    assert me is not None  # noqa: S101  # a coroutine runs in one
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, me.cancel)
    async with stage(settings, _mute if json else _tell) as show:
        if not json:
            _greet(settings, show.address)
        summary = await show.run()
        if json:
            emit(summary)
        else:
            _show(summary)
        if shots is not None:
            async with show.still_life() as places:
                taken = await shoot(chromium, show.address, places, shots)
            note(f"{taken} pictures are in {shots}.")
        if settings.seconds is None:
            say("It goes on; Ctrl-C ends it. Your turn: outlast init, then outlast dev")
            await show.go_on()
    return 0 if summary.passed else 1


def _mute(moment: Moment) -> None:
    """Whoever wants one document wants no story."""


def _greet(settings: Settings, address: str) -> None:
    from outlast import __version__
    from outlast.cli.output import facts
    from outlast.core.text import safe_url

    say(f"Outlast {__version__}, the demo: no key, no network, nothing left behind\n", lines=True)
    facts(
        [
            ("  dashboard", f"{address}/"),
            ("  api", f"{address}/docs"),
            ("  engine", safe_url(settings.engine) if settings.engine else "sqlite, a file"),
            ("  workers", "2 processes"),
            ("  model", "built in, on loopback"),
        ]
    )
    say("")


def _tell(moment: Moment) -> None:
    from rich.text import Text

    line = Text(f"{moment.seconds:4.0f} s  ", style="dim")
    line.append(moment.what, style="bold")
    if moment.look:
        line.append(f"\n        look at: {moment.look}", style="dim")
    console().print(line)


def _show(summary: Summary) -> None:
    from outlast.cli.output import table

    say("")
    rows = [("fail" if claim.wrong else "ok", claim.name, claim.told) for claim in summary.claims]
    table(("", "PROMISE", "FOUND"), rows, "Nothing was judged.")
    say("")
    if summary.cut_off:
        say(f"FAILED: the time was up after {summary.seconds:g} s, at: {summary.cut_off}")
    for claim in summary.claims:
        if claim.wrong:
            say(f"FAILED: {claim.name}: {claim.wrong}.")
    if summary.passed:
        say(f"Everything came true, in {summary.seconds:g} s. (seed {summary.seed})")
