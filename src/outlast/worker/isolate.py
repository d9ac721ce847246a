"""Attempts in processes of their own: a fresh interpreter (`isolate=True`), or a command line.

Never by fork. Each gets a session of its own, so that a halt ends the whole process group: SIGTERM,
and SIGKILL when that was not enough.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import shutil
import signal
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Raw

from outlast.context import Again, Line
from outlast.core.codec import MAX_BYTES, dumps, loads
from outlast.core.errors import LeaseLost, Permanent, TooLarge
from outlast.core.failures import Failure, from_wire
from outlast.core.model import Lease
from outlast.steps import Suspended, Wait
from outlast.worker.child import LOST, Request

if TYPE_CHECKING:
    from outlast.handler import Handler

# Not `-m`: the package imports the module itself, and Python would warn of running it twice.
START: Final = "from outlast.worker.child import main; main()"
KILL_AFTER_S: Final = 5.0
LOOK_S: Final = 0.2
STDERR_LINES: Final = 40
STDERR_BYTES: Final = 8_192
# What a process that was stopped by its own memory cap leaves behind, whatever it is written in.
_OUT_OF_MEMORY: Final = re.compile(
    r"MemoryError|bad_alloc|out ?of ?memory|process OOM|memory (size of \d+ bytes )?exhausted|"
    r"memory allocation of|array buffer allocation failed|"
    r"(cannot|failed to) allocate (memory|\d+ bytes)",
    re.IGNORECASE,
)
_NODE: Final = re.compile(r"Node\.js v\d\S*")
_FIELD: Final = re.compile(r"\{(\w+(?:\.\w+)*)\}")
# Sets the "die with your parent" signal and the memory cap, then becomes the command: preexec_fn
# would run Python between fork and exec, which may deadlock in a process with threads.
_SHIM: Final = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 15)
if os.getppid() != int(sys.argv[1]): os._exit(1)
if most := int(sys.argv[2]):
    import resource
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
os.execvp(sys.argv[3], sys.argv[3:])
"""


class ChildFailed(Exception):
    """The attempt failed over there; `failure` says how."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


# A handler in a fresh interpreter ----------------------------------------------------------------


async def run_child(
    handler: Handler[..., object], target: str | None, lease: Lease, line: Line
) -> object:
    """The result as raw JSON, or `Again`; `ChildFailed` for everything else."""
    if target is None:
        raise Permanent(
            f"{lease.type} runs isolated, but no other process can import its app: keep it in a"
            " module at the top level, or set app.target = 'module:app'."
        )
    request = Request(
        target=target,
        lease=lease,
        now=line.now,
        parent=os.getpid(),
        path=tuple(sys.path),
        memory_mb=handler.memory_mb,
    )
    ours, theirs = os.pipe()
    news = asyncio.StreamReader(limit=MAX_BYTES + 65_536)
    loop = asyncio.get_running_loop()
    try:
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(news), os.fdopen(ours, "rb", 0)
        )
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", START, str(theirs),
                stdin=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=_environment(lease),
                pass_fds=(theirs,),
                start_new_session=True,
            )  # fmt: skip
        except BaseException:
            transport.close()
            raise
    finally:
        os.close(theirs)
    try:
        return await _child_to_end(process, request, news, line)
    finally:
        transport.close()


async def _converse(
    process: asyncio.subprocess.Process, request: Request, news: asyncio.StreamReader, line: Line
) -> object:
    """Pass on what the child tells until it has told the end; None when it never does."""
    await _feed(process.stdin, msgspec.json.encode(request) + b"\n")
    while (told := await news.readline()).endswith(b"\n"):  # else it ended within a line
        kind, data = told[:1], told[1:-1]
        if kind == b"p":
            await line.tell(progress=data)
        elif kind == b"c":
            await line.tell(chunk=data)
        elif kind == b"s":
            wait = msgspec.json.decode(data, type=Wait)
            await _feed(process.stdin, await _stored(line.record(wait.steps, wait.spawn)) + b"\n")
        elif kind == b"u":
            await _feed(process.stdin, await _stored(line.used(data)) + b"\n")
        elif kind == b"l":
            key, pause_ms = msgspec.json.decode(data, type=tuple[str, int])
            await _feed(process.stdin, await _stored(line.paused(key, pause_ms)) + b"\n")
        elif kind == b"t":
            found = await line.look(data.decode())
            await _feed(process.stdin, msgspec.json.encode(found) + b"\n")
        elif kind == b"w":
            raise Suspended(msgspec.json.decode(data, type=Wait))
        elif kind == b"r":
            return Raw(data)
        elif kind == b"a":
            return Again(after=f"{int(data)}ms")
        elif kind == b"f":
            return msgspec.json.decode(data, type=Failure)
    return None


async def _stored(told: Awaitable[None]) -> bytes:
    try:
        await told
    except LeaseLost:
        return LOST
    return b""


async def _child_to_end(
    process: asyncio.subprocess.Process,
    request: Request,
    news: asyncio.StreamReader,
    line: Line,
) -> object:
    last = _Tail()
    listening = asyncio.create_task(last.follow(process.stderr))
    try:
        told = await _converse(process, request, news, line)
        with suppress(TimeoutError):
            async with asyncio.timeout(KILL_AFTER_S):
                await _over(process)
        await asyncio.wait((listening,), timeout=0.5)  # a grandchild may hold it open
    finally:
        await _end(process)
        listening.cancel()
    if told is None:
        told = _crash(process.returncode or 0, str(last), capped=request.memory_mb is not None)
    if isinstance(told, Failure):
        raise ChildFailed(told)
    return told


def _crash(code: int, stderr: str, *, capped: bool) -> Failure:
    """It ended without a word."""
    if capped and ran_out_of_memory(stderr):
        return from_wire(
            {
                "code": "out_of_memory",
                "type": "MemoryError",
                "message": "The process ran into its memory cap.",
                "details": {"exit_code": code, "stderr": stderr},
            }
        )
    hint = " (by the kernel, when memory runs out)" if code == -signal.SIGKILL else ""
    return from_wire(
        {
            "code": "crashed",
            "type": "ProcessCrashed",
            "message": f"The process ended without a result: {ending(code)}{hint}.",
            "details": {"exit_code": code, "stderr": stderr},
        }
    )


def ran_out_of_memory(stderr: str) -> bool:
    """Is that what its last words say?"""
    return _OUT_OF_MEMORY.search(stderr) is not None


def last_words(stderr: str) -> str:
    """The last line of it. Node.js ends with its version, and before that with where it happened:
    of that, what happened."""
    *before, last = [line for line in stderr.splitlines() if line.strip()] or ["no message"]
    if _NODE.fullmatch(last):
        last = next((line for line in reversed(before) if re.match(r"\S*\w", line)), last)
    return last.strip()


def ending(code: int) -> str:
    """A process's code, for people."""
    if code >= 0:
        return f"exit code {code}"
    with suppress(ValueError):
        return f"killed by {signal.Signals(-code).name}"
    return f"killed by signal {-code}"


# A command line ----------------------------------------------------------------------------------


async def run_command(handler: Handler[..., object], lease: Lease) -> object:
    """`exit_code`, `stdout` and `stderr` of the command, and `json` when its output is JSON."""
    argv = fill(handler.command, loads(lease.payload, "payload"))
    said = await run_words(argv, lease.type, _environment(lease), stdin=lease.payload)
    told: dict[str, object] = {
        "exit_code": said.code,
        "stdout": said.stdout.decode("utf-8", "replace"),
        "stderr": said.stderr,
    }
    if said.code != 0:
        raise ChildFailed(
            from_wire(
                {
                    "code": "command_failed",
                    "type": "CommandFailed",
                    "message": f"{argv[0]}: {ending(said.code)}: {last_words(said.stderr)}",
                    "details": told,
                }
            )
        )
    with suppress(ValueError):
        told["json"] = msgspec.json.decode(said.stdout)
    return Raw(dumps(told, f"output of {argv[0]}"))


class Said(msgspec.Struct, frozen=True):
    """How a command ended: its code (or minus the signal), its output, the end of its errors."""

    code: int
    stdout: bytes
    stderr: str


async def run_words(
    argv: list[str],
    type: str,
    env: Mapping[str, str],
    *,
    stdin: bytes = b"",
    folder: str | None = None,
    memory_mb: int | None = None,
    hear: Callable[[bytes], Awaitable[None]] | None = None,
) -> Said:
    """Run a command line to its end, in a session of its own, with nothing left behind when that is
    cut short. `hear` is told its output as it comes."""
    process = await _started(argv, type, env, folder, memory_mb)
    last = _Tail()
    listening = asyncio.create_task(last.follow(process.stderr))
    feeding = asyncio.create_task(_feed(process.stdin, stdin, last=True))
    clearing = asyncio.create_task(_clear_away(process))
    try:
        output = await _read(process.stdout, type, hear)
        clearing.cancel()
        code = await _over(process)
        await asyncio.wait((listening,), timeout=0.5)
    except BaseException:
        if process.returncode is not None:  # it is over; what it has left behind is not
            _kill(process.pid, signal.SIGKILL)
        raise
    finally:
        await _end(process)
        for beside in (listening, feeding, clearing):
            beside.cancel()
    return Said(code, output, str(last))


async def _started(
    argv: list[str], type: str, env: Mapping[str, str], folder: str | None, memory_mb: int | None
) -> asyncio.subprocess.Process:
    path = os.path.join(folder or "", argv[0]) if os.sep in argv[0] else argv[0]
    if shutil.which(path, path=env.get("PATH")) is None:
        raise Permanent(f"{type}: there is no command {path!r} on this worker's PATH.")
    try:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-S", "-c", _SHIM,
            str(os.getpid()), str((memory_mb or 0) * 1_048_576), *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=env,
            cwd=folder,
            start_new_session=True,
        )  # fmt: skip
    except (ValueError, OSError) as error:
        if isinstance(error, OSError) and folder is not None and error.filename == folder:
            why = os.strerror(error.errno or 0)
            raise Permanent(f"{type}: it cannot work in the folder {folder!r}: {why}.") from error
        if isinstance(error, OSError) and error.errno != errno.E2BIG:
            raise
        raise Permanent(
            f"{type}: no command takes such words ({error}); have it read them from standard input."
        ) from error


async def _clear_away(process: asyncio.subprocess.Process) -> None:
    """What a command leaves behind may hold its output open for ever; it has a moment to finish."""
    await _over(process)
    await asyncio.sleep(KILL_AFTER_S)
    _kill(process.pid, signal.SIGKILL)


def fill(template: tuple[str, ...], payload: Mapping[str, object]) -> list[str]:
    """The command's words with `{fields}` of the payload filled in; each stays one word."""

    def value(match: re.Match[str]) -> str:
        found: object = payload
        for name in match[1].split("."):
            if not isinstance(found, Mapping) or name not in found:
                raise Permanent(f"The command needs {{{match[1]}}}, which the payload has not.")
            found = found[name]
        return found if isinstance(found, str) else dumps(found).decode()

    return [_FIELD.sub(value, word) for word in template]


async def _read(
    stream: asyncio.StreamReader | None,
    type: str,
    hear: Callable[[bytes], Awaitable[None]] | None,
) -> bytes:
    data = b""
    while stream is not None and (piece := await stream.read(65_536)):
        data += piece
        if hear is not None:
            await hear(piece)
        if len(data) > MAX_BYTES:
            raise TooLarge(
                f"{type} wrote more than {MAX_BYTES:,} bytes; have it write to a file and print"
                " where that is."
            )
    return data


async def _feed(stream: asyncio.StreamWriter | None, data: bytes, *, last: bool = False) -> None:
    if stream is not None:
        with suppress(ConnectionError):  # it does not want to hear it
            stream.write(data)
            if last:
                stream.write_eof()
            await stream.drain()


# Both --------------------------------------------------------------------------------------------


class _Tail:
    """The last lines of a stream, which goes on to our own standard error: as much as of output."""

    def __init__(self) -> None:
        self._lines: deque[bytes] = deque(maxlen=STDERR_LINES)
        self._room = MAX_BYTES

    async def follow(self, stream: asyncio.StreamReader | None) -> None:
        rest = b""
        while stream is not None and (piece := await stream.read(65_536)):
            self._show(piece)
            *lines, rest = (rest + piece).split(b"\n")
            self._lines.extend(lines)
            rest = rest[-STDERR_BYTES:]
        if rest:
            self._lines.append(rest)

    def _show(self, piece: bytes) -> None:
        if self._room < 0:
            return
        sys.stderr.write(piece[: self._room].decode("utf-8", "replace"))
        self._room -= len(piece)
        if self._room < 0:
            sys.stderr.write("\n… what else it writes to standard error is not shown\n")

    def __str__(self) -> str:
        return b"\n".join(self._lines)[-STDERR_BYTES:].decode("utf-8", "replace")


def _environment(lease: Lease) -> dict[str, str]:
    return {**os.environ, "OUTLAST_TASK_ID": lease.id, "OUTLAST_ATTEMPT": str(lease.attempt)}


async def _end(process: asyncio.subprocess.Process) -> None:
    """See it out: it may be done, or it is asked, and then made, to stop with all its children."""
    try:
        if process.returncode is None:
            await _stop(process)
    finally:
        # Else a pipe that was not read to its end stays open until it is collected.
        process._transport.close()  # type: ignore[attr-defined]  # there is no public way


async def _stop(process: asyncio.subprocess.Process) -> None:
    _kill(process.pid, signal.SIGTERM)
    try:
        async with asyncio.timeout(KILL_AFTER_S):
            await _over(process)
    except TimeoutError:
        pass
    finally:  # also when we are told a second time
        _kill(process.pid, signal.SIGKILL)
    await _over(process)


async def _over(process: asyncio.subprocess.Process) -> int:
    """Its code, once it is over. `process.wait()` goes on for as long as anybody has its pipes, as
    a process that it has started in another session may."""
    waiting = asyncio.create_task(process.wait())
    try:
        while process.returncode is None:
            await asyncio.wait((waiting,), timeout=LOOK_S)
    finally:
        waiting.cancel()
    return process.returncode


def _kill(group: int, with_signal: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, with_signal)
