"""The machinery of `outlast dev`: an API process and a worker process, watched over by one that
imports nothing of the user's, so that no mistake in user code can stop it.

Its life: *start* both; then look twice a second for a changed source file. Changed code is imported
in a process of its own first: if that fails the old code stays up and the error is told; if not,
both are started again. A worker that ends is left alone until then; an API that ends is not.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
import typer

from outlast import __version__
from outlast.cli.output import note
from outlast.cli.run import SAMPLES, About, ask_about
from outlast.core.errors import OutlastError
from outlast.core.text import clean, safe_url
from outlast.worker.parent import die_with

POLL_S: Final = 0.5
GRACE: Final = "3s"  # attempts that need longer are given back, at no cost, and run again
KILL_S: Final = 15.0
SKIPPED: Final = frozenset({"__pycache__", "node_modules", "site-packages", "venv", "env"})


class Dev:
    """One session of `outlast dev`."""

    def __init__(
        self, app: str | None, engine: str | None, host: str, port: int, *, reload: bool
    ) -> None:
        self._named = app
        self._engine = ["--engine", engine] if engine else []
        self._url = engine
        self._host, self._port = host, port
        self._reload = reload
        self._stop = asyncio.Event()
        self._api: Process | None = None
        self._worker: Process | None = None

    async def run(self) -> int:
        about = await self._about()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._on_signal)
        trickle: asyncio.Task[None] | None = None
        try:
            address = await self._start(str(about.target))
            if address is None:
                return await self._failed()
            self._greet(about, address)
            if about.target == SAMPLES:
                trickle = asyncio.create_task(_trickle(about.url))
            await self._watch(about)
            return 0
        finally:
            if trickle is not None:
                trickle.cancel()
            await self._end()

    async def _about(self) -> About:
        told = await asyncio.to_thread(ask_about, self._named, self._url)
        if told.target is None:
            told = await asyncio.to_thread(ask_about, SAMPLES, self._url)
        return told

    # processes -----------------------------------------------------------------------------------

    async def _start(self, target: str) -> str | None:
        """Both processes; the address of the API once it answers, None when it has ended."""
        self._worker = await self._spawn("worker", target, "--grace", GRACE)
        return await self._start_api(target)

    async def _start_api(self, target: str) -> str | None:
        ours, theirs = os.pipe()
        where = ("--host", self._host, "--port", str(self._port), "--ready-fd", str(theirs))
        quiet = ("--log-level", "warning")
        self._api = await self._spawn("serve", target, *where, *quiet, pass_fds=(theirs,))
        os.close(theirs)
        address = await self._read(ours)
        if not address:
            return None
        self._port = int(address.rpartition(":")[2])  # port 0 was any: now it is this one
        return address

    async def _read(self, fd: int) -> str:
        """The line that comes from a pipe; nothing when it ends before, or when we are to stop."""
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(fd, "rb", 0)
        )
        line = asyncio.create_task(reader.readline())
        stop = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({line, stop}, return_when=asyncio.FIRST_COMPLETED)
            return line.result().decode().strip() if line.done() else ""
        finally:
            line.cancel()
            stop.cancel()
            transport.close()

    async def _spawn(self, *command: str, pass_fds: tuple[int, ...] = ()) -> Process:
        parent = os.getpid()
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "outlast", *command, *self._engine,
            stdin=DEVNULL,
            pass_fds=pass_fds,
            start_new_session=True,  # Ctrl-C is for us: we stop the others in order
            preexec_fn=lambda: die_with(parent, signal.SIGTERM),
        )  # fmt: skip

    async def _end(self) -> None:
        """The worker first: it hands back what it holds while the API can still show it."""
        for process in (self._worker, self._api):
            if process is not None and not _has_ended(process):
                with suppress(ProcessLookupError):
                    process.terminate()
                try:
                    await asyncio.wait_for(process.wait(), KILL_S)
                except TimeoutError:
                    process.kill()
                    await process.wait()

    def _on_signal(self) -> None:
        if self._stop.is_set() and self._worker is not None and not _has_ended(self._worker):
            self._worker.terminate()  # the second time: give everything back now
        self._stop.set()

    async def _failed(self) -> int:
        """The exit code when the API did not come up; it has told why."""
        if self._stop.is_set() or self._api is None:
            return 0
        return abs(await self._api.wait()) or 1

    # changes -------------------------------------------------------------------------------------

    async def _watch(self, about: About) -> None:
        seen = _sources()
        up = worker_up = True
        while not await self._stopped_within(POLL_S):
            if up and _has_ended(self._api):
                note("outlast: the API has ended; starting it again")
                up = await self._start_api(str(about.target)) is not None
            if worker_up and _has_ended(self._worker):
                worker_up = False
                note("outlast: the worker has ended; it starts again when a source file changes")
            now = await asyncio.to_thread(_sources) if self._reload else seen
            if now == seen:
                continue
            name, seen = _difference(seen, now), now
            try:
                about = await self._about()
            except typer.Exit:
                stays = ": the code before it stays up" if up else ""
                note(f"outlast: {name} changed, but cannot be used{stays}")
                continue
            note(f"outlast: {name} changed: starting again")
            await self._end()
            up = await self._start(str(about.target)) is not None
            worker_up = True

    async def _stopped_within(self, seconds: float) -> bool:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stop.wait(), seconds)
        return self._stop.is_set()

    # telling -------------------------------------------------------------------------------------

    def _greet(self, about: About, base: str) -> None:
        typer.echo(
            clean(f"Outlast {__version__}: {about.target} on {safe_url(about.url)}") + "\n\n"
            f"  Dashboard  {base}/\n"
            f"  API        {base}/docs\n"
            f"  Health     {base}/health\n\n"
            f"Next: {self._next(about)}\n(Ctrl-C stops everything; tasks that wait are kept)"
        )
        sys.stdout.flush()

    def _next(self, about: About) -> str:
        named = ["--app", self._named] if self._named else []
        flags = "".join(f" {flag}" for flag in (*named, *self._engine))
        if not about.types:
            return f"outlast tasks ls{flags}"
        name, schema = next(iter(about.types.items()))
        example = example_of(schema)
        payload = f" '{msgspec.json.encode(example).decode()}'" if example else ""
        return clean(f"outlast enqueue {name}{payload} --follow{flags}")


def example_of(schema: Mapping[str, object]) -> dict[str, object]:
    """A payload with something for each required field, to be typed over."""
    stand_ins: dict[object, object] = {
        "string": "…", "integer": 1, "number": 1, "boolean": True, "array": [], "object": {},
    }  # fmt: skip
    properties: dict[str, dict[str, object]] = schema.get("properties", {})  # type: ignore[assignment]
    required: list[str] = schema.get("required", [])  # type: ignore[assignment]
    return {name: stand_ins.get(properties[name].get("type"), "…") for name in required}


def _has_ended(process: Process | None) -> bool:
    return process is None or process.returncode is not None


async def _trickle(url: str) -> None:
    from outlast import samples

    samples.app.use(url)
    try:
        async with samples.app:
            await samples.lively()
    except OutlastError as problem:
        note(f"outlast: no more sample tasks: {problem}")


def _sources() -> dict[str, int]:
    """When each Python file below the current folder was changed."""
    return {path: at for path, at in _walk(Path.cwd())}


def _walk(top: Path) -> Iterator[tuple[str, int]]:
    for folder, below, files in os.walk(top):
        below[:] = [
            name for name in below
            if not name.startswith(".") and name not in SKIPPED
            and not Path(folder, name, "pyvenv.cfg").exists()
        ]  # fmt: skip
        for name in files:
            if name.endswith(".py"):
                with suppress(OSError):  # gone between the two looks
                    path = os.path.join(folder, name)
                    yield path, os.stat(path).st_mtime_ns


def _difference(before: dict[str, int], after: dict[str, int]) -> str:
    changed = [path for path in {**before, **after} if before.get(path) != after.get(path)]
    return Path(changed[0]).name if len(changed) == 1 else f"{len(changed)} files"
