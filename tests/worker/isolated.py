"""Handlers for the tests of isolation: children import them from here."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from outlast.app import Outlast
from outlast.context import Again, Context, SyncContext
from outlast.core.errors import Permanent, Transient

app = Outlast("memory://")


@app.task(isolate=True)
def where(n: int) -> list[int]:
    return [n, os.getpid(), os.getsid(0)]


@app.task(isolate=True)
async def talks(ctx: Context) -> str:
    await ctx.progress(40, "on it")
    await ctx.emit("one")
    await ctx.emit("two")
    sys.stdout.write("printed, not a result\n")
    return os.environ["OUTLAST_TASK_ID"] + "/" + os.environ["OUTLAST_ATTEMPT"]


@app.task(isolate=True)
def later() -> str | Again:
    return Again(after="30s")


@app.task(isolate=True)
def refuses() -> None:
    raise Permanent("not like this", details={"why": "because"})


@app.task(isolate=True, max_attempts=1)
def dies(how: str) -> None:
    sys.stderr.write("famous last words\n")
    sys.stderr.flush()
    if how == "exit":
        os._exit(42)
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(isolate=True, max_attempts=1)
def breaks_off(ctx: SyncContext) -> str:
    """Dies within the line that tells its result."""
    os.write(ctx._line._fd, b'r"half of')  # type: ignore[attr-defined]  # its pipe
    os._exit(3)


@app.task(isolate=True, memory="400MB")
def eats() -> int:
    return len(bytearray(800 * 1_048_576))


@app.task(isolate=True, max_attempts=1)
def hangs(folder: str, stubborn: bool = False) -> None:
    """With a grandchild, and deaf to SIGTERM when it is stubborn."""
    if stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        (Path(folder) / "pids.tmp").write_text(f"{os.getpid()} {grandchild.pid}")
        (Path(folder) / "pids.tmp").rename(Path(folder) / "pids")
        time.sleep(60)
    finally:
        (Path(folder) / "cleaned").touch()


@app.task(isolate=True, timeout="1s", max_attempts=1)
async def too_long() -> None:
    await asyncio.sleep(60)


app.command("shout", ["tr", "a-z", "A-Z"])
app.command("give", [sys.executable, "-c", "import sys; print(sys.argv[1])", "{text}"])
app.command("broken", ["sh", "-c", "echo partial; echo oh no >&2; exit 3"], max_attempts=1)
app.command("missing", ["no-such-command-anywhere"])
app.command("chatty", ["sh", "-c", "head -c 3000000 /dev/zero"])
app.command("named", ["sh", "-c", "echo $OUTLAST_TASK_ID $OUTLAST_ATTEMPT"])


@app.task
def double(n: int) -> int:
    return 2 * n


@app.task(isolate=True)
def remembers(ctx: SyncContext, folder: str) -> list[object]:
    page = ctx.step("page", _write, folder)
    doubled = ctx.call(double, 21)
    if ctx.attempt == 1:
        raise Transient("again")
    return [page, doubled, ctx.wait_for("go")]


@app.task(isolate=True)
async def remembers_too(ctx: Context, folder: str) -> str:
    page = await ctx.step("page", _write, folder)
    await ctx.sleep("1m")
    return page


def _write(folder: str) -> str:
    with Path(folder, "effects").open("a") as file:
        file.write("x")
    return "page"


@app.task(isolate=True)
def rests(ctx: SyncContext) -> None:
    ctx.pause("service", "1h")
