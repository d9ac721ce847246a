"""Where the suite gets its engines: one URL per test, in a namespace of its own.

A file engine gets a temporary file. A server is found at the address in its variable (`SERVERS`);
without one, `tests/servers/<name>.py` starts it, once per process.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Final

from outlast.core.ids import new_id

SERVERS: Final[dict[str, str]] = {
    "postgresql": "OUTLAST_TEST_POSTGRESQL",
    "pgbouncer": "OUTLAST_TEST_PGBOUNCER",
    "redis": "OUTLAST_TEST_REDIS",
    "redis-cluster": "OUTLAST_TEST_REDIS_CLUSTER",
    "mongodb": "OUTLAST_TEST_MONGODB",
}
"""Engine -> environment variable with the address of a running server."""

ALL: Final = "sqlite,memory,postgresql,redis,mongodb"
FILES: Final = frozenset({"sqlite"})
"""Engines that live in a file."""
SHARED: Final = FILES | SERVERS.keys()
"""Engines that several processes can share."""


NO_TRANSACTION: Final = frozenset({"redis", "redis-cluster"})
"""Engines without a transaction that a caller could join; they say so."""


def chosen() -> Sequence[str]:
    """The engines of this run: OUTLAST_TEST_ENGINES=sqlite,memory, or all of them."""
    names = [n for n in os.environ.get("OUTLAST_TEST_ENGINES", ALL).split(",") if n]
    # A program beside an engine; where it is missing, the engine itself is tested all the same.
    return [n for n in names if n != "pgbouncer" or server(n).PROGRAM]


def url_for(name: str, folder: Path) -> str:
    """A URL of an empty namespace of the engine."""
    unique = new_id().replace("-", "")
    if name == "memory":
        return f"memory://{unique}"
    if name in FILES:
        return f"{name}:///{folder}/{unique}.db"
    address = os.environ.get(SERVERS.get(name, ""), "") or started(name)
    if hasattr(server(name), "namespace"):
        made: str = server(name).namespace(address, f"t{unique}")
        return made
    return f"{address}?namespace=t{unique}"


@cache
def started(name: str) -> str:
    """The address of a server that `tests/servers/<name>.py` starts and stops with this process."""
    address: str = server(name).start()
    return address


def cleared(name: str) -> None:
    """A test is over: a server that we started, and that keeps all of it in memory, forgets it."""
    if name in SERVERS and not os.environ.get(SERVERS[name]) and hasattr(server(name), "clear"):
        server(name).clear(started(name))


@cache
def server(name: str) -> ModuleType:
    path = Path(__file__).parent.parent / "servers" / f"{name.replace('-', '_')}.py"
    spec = spec_from_file_location(f"tests_servers_{path.stem}", path)
    if not path.exists() or spec is None or spec.loader is None:
        raise LookupError(f"{name}: there is no {path.name} in tests/servers")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
