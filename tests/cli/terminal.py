"""A command in a real terminal: keys go in, and what is to be seen comes out."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pyte

MODE: Final = re.compile(rb"\x1b\[\?([\d;]+)([hl])")
OTHERS: Final = ("OUTLAST_", "TEXTUAL", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR")
PATIENCE_S: Final = 30.0


class Terminal:
    """What a person sees of a command, and the keys that they press."""

    def __init__(self, columns: int, lines: int) -> None:
        self.screen = pyte.Screen(columns, lines)
        self.stream = pyte.ByteStream(self.screen)
        self.raw = bytearray()
        self.drawn = asyncio.Event()
        self.master, self.slave = pty.openpty()
        self.resize(columns, lines)
        self.settings = termios.tcgetattr(self.slave)
        os.set_blocking(self.master, False)

    def start(self, *args: str, folder: Path) -> None:
        told = {k: v for k, v in os.environ.items() if not k.startswith(OTHERS)}
        self.process = subprocess.Popen(  # noqa: S603  # ourselves
            [sys.executable, "-m", "outlast", *args],
            cwd=folder,
            env={**told, "TERM": "xterm-256color"},
            preexec_fn=lambda: os.login_tty(self.slave),
        )

    def resize(self, columns: int, lines: int) -> None:
        self.screen.resize(lines, columns)
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def press(self, *keys: str) -> None:
        os.write(self.master, "".join(keys).encode())

    @property
    def lines(self) -> list[str]:
        """What is on the screen, without the spaces that align it."""
        return [" ".join(line.split()) for line in self.screen.display]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    @property
    def chosen(self) -> str:
        """The row that is marked, by which keys go."""
        marked = (n for n, cells in self.screen.buffer.items() if cells[0].reverse)
        return next((self.lines[n] for n in marked), "")

    async def sees(self, *texts: str, without: str = "\0") -> None:
        """All of this is on the screen, or will be."""
        await self.shows(
            lambda: without not in self.text and all(one in self.text for one in texts)
        )

    async def shows(self, holds: Callable[[], bool]) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not holds():
                    self.drawn.clear()
                    await self.drawn.wait()
        except TimeoutError:
            raise AssertionError(f"not seen within {PATIENCE_S:.0f} s:\n{self.text}") from None

    async def over(self) -> int:
        """Its exit code, once it is over and all that it drew has been read."""
        async with asyncio.timeout(PATIENCE_S):
            code = await asyncio.to_thread(self.process.wait)
        self.read()
        return code

    async def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            await asyncio.to_thread(self.process.wait)

    def read(self) -> None:
        while True:
            try:
                data = os.read(self.master, 65_536)
            except OSError as problem:
                assert problem.errno in (errno.EIO, errno.EAGAIN)
                return
            self.raw += data
            self.stream.feed(data)
            self.drawn.set()

    def is_restored(self) -> bool:
        """As it was before: the screen of the shell, its cursor, no mouse, lines and echo."""
        modes = {
            mode: found[2]
            for found in MODE.finditer(self.raw)
            for mode in found[1].decode().split(";")
        }
        assert b"\x1b[?1049h" in self.raw
        off = {"1049", "1000", "1003", "1004", "1006", "1015", "2004"}
        return (
            all(modes.get(mode, b"l") == b"l" for mode in off)
            and modes["25"] == b"h"
            and self.raw.count(b"\x1b[>") == self.raw.count(b"\x1b[<u")  # how keys are told
            and termios.tcgetattr(self.slave) == self.settings
        )


@asynccontextmanager
async def terminal(
    *args: str, folder: Path, columns: int = 80, lines: int = 24
) -> AsyncIterator[Terminal]:
    """`outlast` with these arguments in a terminal of this size, until the block is left."""
    shown = Terminal(columns, lines)
    loop = asyncio.get_running_loop()
    loop.add_reader(shown.master, shown.read)
    try:
        shown.start(*args, folder=folder)
        yield shown
    finally:
        await shown.end()
        loop.remove_reader(shown.master)
        os.close(shown.master)
        os.close(shown.slave)
