"""The processes of the demo: a server, and a supervisor with two workers."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from contextlib import suppress
from pathlib import Path
from typing import Final

from outlast.core.errors import EngineDown
from outlast.core.text import clean
from outlast.demo.app import FOLDER, MODEL, REPORTS
from outlast.worker.parent import die_with

APP: Final = "outlast.demo.app:app"
WORKERS: Final = 2
REPORTS_EACH: Final = 3
"""Reports that one worker runs at once: so it is known how many a killed one held."""
LEASE: Final = "3s"
KILL_S: Final = 10.0
TOLD: Final = 600


class Fleet:
    """They write into files in the folder, and end with us, however we end."""

    def __init__(self, folder: Path, engine: str, model: str) -> None:
        self._folder = folder
        self._engine = engine
        self._environment = {
            **os.environ, FOLDER: str(folder), MODEL: model,
            "OUTLAST_WEBHOOK_NETWORKS": "127.0.0.1",  # where the receiver of the demo listens
        }  # fmt: skip
        self._running: dict[str, Process] = {}

    async def serve(self, port: int) -> str:
        """The API and the dashboard; their address."""
        told = ("--port", str(port), "--log-level", "warning")
        process = await self._spawn("serve", *told, stdout=PIPE)
        assert process.stdout is not None  # noqa: S101  # it is a pipe
        line = (await process.stdout.readline()).decode().split()
        if not line:
            raise EngineDown(f"The server of the demo did not start: {self._said('serve')}")
        return line[-1]

    async def work(self) -> None:
        await self._spawn(
            "worker", "--processes", str(WORKERS), "-q", "default",
            "-q", f"{REPORTS}={REPORTS_EACH}", "--lease", LEASE, "--grace", "1s",
        )  # fmt: skip

    def check(self) -> None:
        """None of them may have ended."""
        for name, process in self._running.items():
            if process.returncode is not None:
                raise EngineDown(f"`outlast {name}` of the demo has ended: {self._said(name)}")

    async def end(self) -> None:
        """The workers first, then the server."""
        for process in reversed(self._running.values()):
            with suppress(ProcessLookupError):
                process.terminate()
            try:
                await asyncio.wait_for(process.wait(), KILL_S)
            except TimeoutError:
                process.kill()
                await process.wait()

    async def _spawn(self, command: str, *flags: str, stdout: int | None = None) -> Process:
        parent = os.getpid()
        with (self._folder / f"log-{command}").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "outlast", command, APP, "--engine", self._engine, *flags,
                stdin=DEVNULL, stdout=stdout or log, stderr=log,
                cwd=self._folder, env=self._environment,  # where nobody's main.py is
                start_new_session=True,  # Ctrl-C is for us: we stop the others in order
                preexec_fn=lambda: die_with(parent, signal.SIGTERM),
            )  # fmt: skip
        self._running[command] = process
        return process

    def _said(self, command: str) -> str:
        told = (self._folder / f"log-{command}").read_text(errors="replace").strip()
        return clean(told[-TOLD:]) or "it said nothing."
