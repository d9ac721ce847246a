"""The process of one isolated attempt: reads its request, runs the handler, tells what happens.

Started by `isolate.run_child`, which calls `main()` with the number of a pipe. The request comes on
standard input; news and the end go to the pipe <fd>, a line each, told apart by its first byte:
`p` progress, `c` chunk, then one of `r` result, `a` again (with milliseconds), `f` failure.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import resource
import signal
import sys
import threading
from collections.abc import Awaitable
from time import monotonic
from typing import NoReturn

import msgspec
from msgspec import Struct

from outlast.context import DONE, Again, Context
from outlast.core.failures import classify
from outlast.core.model import Json, Lease
from outlast.core.states import Ms
from outlast.loading import load_app
from outlast.worker.parent import die_with


class Request(Struct, frozen=True, kw_only=True):
    """All that the child needs to know."""

    target: str
    lease: Lease
    now: Ms
    parent: int
    path: tuple[str, ...]
    memory_mb: int | None = None


class Pipe:
    """The line of the child's context."""

    def __init__(self, fd: int, now: Ms) -> None:
        self._fd = fd
        self._begun = monotonic()
        self._now = now
        self._lock = threading.Lock()
        self.cancelled = False

    @property
    def elapsed_ms(self) -> int:
        return round((monotonic() - self._begun) * 1_000)

    @property
    def now(self) -> Ms:
        return self._now + self.elapsed_ms

    def tell(self, *, progress: Json | None = None, chunk: Json | None = None) -> Awaitable[None]:
        if progress is not None:
            self.write(b"p", progress)
        if chunk is not None:
            self.write(b"c", chunk)
        return DONE

    def write(self, kind: bytes, data: bytes) -> None:
        line = memoryview(kind + data + b"\n")
        with self._lock:
            while line:
                line = line[os.write(self._fd, line) :]


def run(request: Request, pipe: Pipe) -> None:
    """Everything that can go wrong in here ends as a failure of the attempt."""
    try:
        handler = load_app(request.target).handlers[request.lease.type]
        args, kwargs = handler.signature.call_args(request.lease.payload)
        if handler.signature.takes_context:
            args = (Context(request.lease, pipe), *args)
        if inspect.iscoroutinefunction(handler.fn):
            result = asyncio.run(_cancellable(handler.fn(*args, **kwargs), pipe))
        else:
            result = handler.fn(*args, **kwargs)
        if isinstance(result, Again):
            pipe.write(b"a", str(result.delay_ms(pipe.now)).encode())
        else:
            pipe.write(b"r", handler.signature.encode_result(result))
    except BaseException as error:
        if not pipe.cancelled:
            pipe.write(b"f", msgspec.json.encode(classify(error, now_ms=pipe.now)))


async def _cancellable(work: Awaitable[object], pipe: Pipe) -> object:
    task = asyncio.ensure_future(work)

    def stop() -> None:
        pipe.cancelled = True
        task.cancel()

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
    return await task


def main() -> NoReturn:
    fd = int(sys.argv[1])
    os.set_inheritable(fd, False)  # a grandchild that holds the pipe would keep it from ending
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=Request)
    die_with(request.parent)
    pipe = Pipe(fd, request.now)

    def stop(_signal: int, _frame: object) -> NoReturn:
        # Plain code has no cancellation; this lets its `finally` blocks run.
        pipe.cancelled = True
        raise SystemExit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, stop)
    if request.memory_mb is not None:
        most = request.memory_mb * 1_048_576
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    sys.path[:] = request.path
    run(request, pipe)
    sys.stdout.flush()
    sys.stderr.flush()
    # Not sys.exit: a thread that the handler left behind must not keep the process alive.
    os._exit(128 + signal.SIGTERM if pipe.cancelled else 0)
