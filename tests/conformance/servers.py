"""Where the suite gets its engines: one URL per test, in a namespace of its own.

A file engine gets a temporary file. A server gets its line in `SERVERS` (the variable that holds
its address) and its way to make a namespace in `url_for`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from outlast.core.ids import new_id

SERVERS: Final[dict[str, str]] = {}
"""Engine -> environment variable with the address of a running server."""

FILES: Final = frozenset({"sqlite"})
"""Engines that several processes can share through nothing but a path."""


class Unreachable(Exception):
    """There is no such server here: skipped on a laptop, an error where CI=true."""


def chosen() -> Sequence[str]:
    """The engines of this run: OUTLAST_TEST_ENGINES=sqlite,memory."""
    return [n for n in os.environ.get("OUTLAST_TEST_ENGINES", "sqlite,memory").split(",") if n]


def url_for(name: str, folder: Path) -> str:
    """A URL of an empty namespace of the engine."""
    unique = new_id().replace("-", "")
    if name == "memory":
        return f"memory://{unique}"
    if name in FILES:
        return f"{name}:///{folder}/{unique}.db"
    address = os.environ.get(SERVERS.get(name, ""), "")
    if not address:
        raise Unreachable(f"{name}: set {SERVERS.get(name, 'a line in SERVERS')} to its address")
    return f"{address}?namespace=t{unique}"
