"""Task ids (UUIDv7) and fences; the only file that reads the wall clock."""

import re
import threading
import time
from os import urandom

from outlast.core.errors import BadInput

_UUID = re.compile(r"[0-9a-fA-F]{8}(-?)[0-9a-fA-F]{4}(\1[0-9a-fA-F]{4}){2}\1[0-9a-fA-F]{12}")
# Hex digits "8" to "b" carry the variant and two random bits.
_VARIANT = "89ab" * 64

_lock = threading.Lock()
_last = 0  # the newest tick that was given out


def new_id() -> str:
    """A UUIDv7, larger than every one this process made before.

    The 12 bits beside the millisecond count its 4096ths (RFC 9562, 6.2, method 3), so ids sort by
    tick; the 62 random bits behind are fresh each time, which keeps forked children apart.
    """
    global _last
    tick = time.time_ns() * 4096 // 1_000_000
    with _lock:
        if tick <= _last:  # the same 244 ns, or a clock that went back
            tick = _last + 1
        _last = tick
    noise = urandom(9)
    time_hex, noise_hex = f"{tick:015x}", noise.hex()
    return (
        f"{time_hex[:8]}-{time_hex[8:12]}-7{time_hex[12:]}"
        f"-{_VARIANT[noise[8]]}{noise_hex[:3]}-{noise_hex[3:15]}"
    )


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
