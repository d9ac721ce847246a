"""What `outlast doctor` says of one thing it looked at; engines say it of what only they have.

An engine's package may have a module `doctor` with `before(engine)`, called before the engine is
opened, and `opened(engine)`, called after; both yield checks. `DURABILITY` is its cure for an
engine whose acknowledged writes a power cut may lose.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

CROWDED: Final = 0.85
"""From this share on, connections or memory are called nearly used up."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at. `fix` says what to do, where something is to be done."""

    name: str
    status: Literal["ok", "warn", "fail"]
    message: str
    fix: str | None = None
