"""Pictures that are drawn here: a sky and circles, the same for the same prompt and seed."""

from __future__ import annotations

import random
import struct
import zlib
from typing import Final

CIRCLES: Final = 12
MAX_SIDE: Final = 2_048

Colour = tuple[int, int, int]


def draw(prompt: str, seed: int, width: int, height: int) -> bytes:
    """A PNG."""
    chance = random.Random(f"{seed} {prompt}")  # noqa: S311  # art, not a secret
    top, bottom = _colour(chance), _colour(chance)
    rows = [bytearray(bytes(_between(top, bottom, y / height)) * width) for y in range(height)]
    for _ in range(CIRCLES):
        _circle(rows, chance, width, height)
    return _png(rows, width, height)


def _colour(chance: random.Random) -> Colour:
    return chance.randrange(256), chance.randrange(256), chance.randrange(256)


def _between(a: Colour, b: Colour, part: float) -> Colour:
    red, green, blue = (round(x + (y - x) * part) for x, y in zip(a, b, strict=True))
    return red, green, blue


def _circle(rows: list[bytearray], chance: random.Random, width: int, height: int) -> None:
    colour = bytes(_colour(chance))
    radius = chance.uniform(0.04, 0.2) * min(width, height)
    at_x, at_y = chance.uniform(0, width), chance.uniform(0, height)
    for y in range(max(0, int(at_y - radius)), min(height, int(at_y + radius) + 1)):
        half = max(radius**2 - (y - at_y) ** 2, 0) ** 0.5
        start, end = max(0, int(at_x - half)), min(width, int(at_x + half))
        if start < end:
            rows[y][start * 3 : end * 3] = colour * (end - start)


def _png(rows: list[bytearray], width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        check = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)

    lines = b"".join(b"\0" + row for row in rows)
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)  # 8 bits of red, green and blue
    parts = chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(lines)), chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)
