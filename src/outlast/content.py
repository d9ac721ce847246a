"""Content: pictures, films and sounds that handlers store, kept beside the engine under ids.

A task's payload and result are for data; what is larger goes here, and its id into the result.
`Folder` keeps it on a disk that the workers and servers share; another `Store` may keep it
elsewhere. What it is, is read from its first bytes and not believed from a header: nothing is kept
that a browser would run.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from collections.abc import AsyncGenerator, AsyncIterable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final, Protocol

import msgspec
from msgspec import Struct

from outlast.core.errors import BadInput, NotFound, Permanent, TooLarge
from outlast.core.ids import id_for
from outlast.core.model import TaskId
from outlast.core.states import Ms

MAX_BYTES: Final = 256 * 1_048_576
HEAD: Final = 64
PIECE: Final = 256 * 1024
_ID: Final = re.compile(r"gc_[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")

# What the first bytes say, and where they are.
_MARKS: Final[tuple[tuple[int, bytes, str], ...]] = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF87a", "image/gif"),
    (0, b"GIF89a", "image/gif"),
    (8, b"WEBP", "image/webp"),
    (8, b"WAVE", "audio/wav"),
    (4, b"ftypavif", "image/avif"),
    (4, b"ftyp", "video/mp4"),
    (0, b"\x1aE\xdf\xa3", "video/webm"),
    (0, b"OggS", "audio/ogg"),
    (0, b"ID3", "audio/mpeg"),
    (0, b"\xff\xfb", "audio/mpeg"),
    (0, b"%PDF-", "application/pdf"),
)
TYPES: Final = tuple(sorted({type for _, _, type in _MARKS}))


class Content(Struct, frozen=True, kw_only=True):
    """What is known of one piece of content."""

    id: str
    content_type: str
    size: int
    sha256: str
    task_id: TaskId
    """Whose it is: who may see the task may see this."""


class Store(Protocol):
    """Keeps content. Keeping the same id again replaces it, whole or not at all."""

    async def keep(self, id: str, task_id: TaskId, pieces: AsyncIterable[bytes]) -> Content: ...

    async def find(self, id: str) -> Content | None: ...

    def read(self, content: Content, start: int, end: int) -> AsyncGenerator[bytes, None]:
        """The bytes from `start` up to `end`, in pieces."""

    async def forget(self, id: str) -> None: ...


def content_id(created_at: Ms, task_id: TaskId, name: str) -> str:
    """The id of what a task keeps under a name: the same in every attempt, so that a repetition
    replaces what it repeats."""
    return f"gc_{id_for(created_at, f'{task_id} content {name}')}"


def type_of(head: bytes) -> str | None:
    """What it is, by its first bytes; None for whatever is not kept."""
    return next((type for at, mark, type in _MARKS if head[at : at + len(mark)] == mark), None)


class Folder:
    """Content as files. A file appears under its name when all of it is on the disk."""

    def __init__(self, path: str | Path, *, max_bytes: int = MAX_BYTES) -> None:
        self.path = Path(path)
        self._max_bytes = max_bytes

    async def keep(self, id: str, task_id: TaskId, pieces: AsyncIterable[bytes]) -> Content:
        file = self._file(id)
        await asyncio.to_thread(_make_room, file)
        part = file.with_name(f"{file.name}.{os.urandom(4).hex()}.part")
        try:
            content = await self._write(part, id, task_id, pieces)
            await asyncio.to_thread(_finish, part, file, msgspec.json.encode(content))
        finally:
            with suppress(OSError):
                part.unlink(missing_ok=True)
        return content

    async def find(self, id: str) -> Content | None:
        if _ID.fullmatch(id) is None:
            return None
        try:
            data = await asyncio.to_thread(self._about(id).read_bytes)
        except FileNotFoundError:
            return None
        return msgspec.json.decode(data, type=Content)

    async def read(self, content: Content, start: int, end: int) -> AsyncGenerator[bytes, None]:
        try:
            file = await asyncio.to_thread(self._file(content.id).open, "rb")
        except FileNotFoundError:
            raise NotFound(f"There is no content {content.id}.") from None
        try:
            await asyncio.to_thread(file.seek, start)
            while start < end:
                piece = await asyncio.to_thread(file.read, min(PIECE, end - start))
                if not piece:
                    return
                start += len(piece)
                yield piece
        finally:
            await asyncio.to_thread(file.close)

    async def forget(self, id: str) -> None:
        for file in (self._about(id), self._file(id)):
            await asyncio.to_thread(file.unlink, missing_ok=True)

    # in detail -----------------------------------------------------------------------------------

    def _file(self, id: str) -> Path:
        if _ID.fullmatch(id) is None:
            raise BadInput(f"{id[:60]!r} is no id of content: content_id() makes them.")
        return self.path / id[-2:] / id

    def _about(self, id: str) -> Path:
        file = self._file(id)
        return file.with_name(f"{file.name}.json")

    async def _write(
        self, part: Path, id: str, task_id: TaskId, pieces: AsyncIterable[bytes]
    ) -> Content:
        digest, size, head = hashlib.sha256(), 0, b""
        file: BinaryIO = await asyncio.to_thread(part.open, "wb")
        try:
            async for piece in pieces:
                if len(head) < HEAD:
                    head += piece[: HEAD - len(head)]
                size += len(piece)
                if size > self._max_bytes:
                    raise TooLarge(f"The content is larger than {self._max_bytes:,} bytes.")
                digest.update(piece)
                await asyncio.to_thread(file.write, piece)
        finally:
            await asyncio.to_thread(file.close)
        type = type_of(head)
        if type is None:
            raise Permanent(
                f"What came is none of the types that are kept: {', '.join(TYPES)}.",
                details={"size": size},
            )
        return Content(
            id=id, content_type=type, size=size, sha256=digest.hexdigest(), task_id=task_id
        )


def _make_room(file: Path) -> None:
    """Its folder, without what one that was killed in the middle has left of it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    for left in file.parent.glob(f"{file.name}.*.part*"):
        left.unlink(missing_ok=True)


def _finish(part: Path, file: Path, about: bytes) -> None:
    """To the disk, and then under its name; what tells of it comes last."""
    told = file.with_name(f"{file.name}.json")
    beside = part.with_name(f"{part.name}.json")
    beside.write_bytes(about)
    for path, name in ((part, file), (beside, told)):
        with path.open("rb") as done:
            os.fsync(done.fileno())
        path.replace(name)
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
