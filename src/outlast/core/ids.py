"""Task ids (UUIDv7) and fences; the only file that reads the wall clock."""

import re
import threading
import time
from hashlib import sha256
from os import register_at_fork, urandom
from uuid import UUID

from outlast.core.errors import BadInput

_UUID = re.compile(r"[0-9a-fA-F]{8}(-?)[0-9a-fA-F]{4}(\1[0-9a-fA-F]{4}){2}\1[0-9a-fA-F]{12}")
# Bytes with the two bits of the variant before their six random ones.
_VARIANT = bytes(0x80 | byte & 0x3F for byte in range(256))

_lock = threading.Lock()
_last = 0  # the newest tick that was given out
_noise: list[str] = []  # drawn ahead: a system call for each id would be a third of its cost
register_at_fork(after_in_child=_noise.clear)


def new_id() -> str:
    """A UUIDv7, larger than every one this process made before.

    The 12 bits beside the millisecond count its 4096ths (RFC 9562, 6.2, method 3), so ids sort by
    tick; the 62 random bits behind keep processes apart, forked children too.
    """
    global _last
    tick = time.time_ns() * 4096 // 1_000_000
    with _lock:
        if tick <= _last:  # the same 244 ns, or a clock that went back
            tick = _last + 1
        _last = tick
        if not _noise:
            _draw()
        noise = _noise.pop()
    time_hex = f"{tick:015x}"
    return f"{time_hex[:8]}-{time_hex[8:12]}-7{time_hex[12:]}-{noise}"


def _draw() -> None:
    drawn = bytearray(urandom(2048))
    drawn[::8] = drawn[::8].translate(_VARIANT)
    _noise.extend([drawn[i : i + 8].hex("-", 6) for i in range(0, len(drawn), 8)])


def id_for(ms: int, what: str) -> str:
    """The one UUIDv7 of a thing of that moment: whoever makes it makes the same."""
    noise = int.from_bytes(sha256(what.encode()).digest()[:10])
    bits = (ms << 80) | (noise & ~(0xF << 76) & ~(0b11 << 62)) | (7 << 76) | (0b10 << 62)
    return str(UUID(int=bits))


def check_id(text: str) -> str:
    """The id in canonical lower case; any version of UUID is welcome, anything else is not."""
    if not isinstance(text, str) or _UUID.fullmatch(text) is None:
        raise BadInput(
            f"{str(text)[:60]!r} is not a task id: a UUID such as"
            " '01890a5d-ac96-774b-bcce-b302099a8057' is needed.",
            field="id",
        )
    bare = text.replace("-", "").lower()
    return f"{bare[:8]}-{bare[8:12]}-{bare[12:16]}-{bare[16:20]}-{bare[20:]}"


def new_fence() -> int:
    """A random token of 63 bits above 0: fits a signed 64-bit column."""
    return int.from_bytes(urandom(8), "big") >> 1 or 1
