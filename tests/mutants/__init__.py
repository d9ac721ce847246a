"""Wrong engines, made on purpose: one table of mutants per engine.

A suite that passes them tests nothing. `copied(mutant, folder)` gives an environment in which any
program, and all it starts, has the mutant.
"""

from __future__ import annotations

from typing import Final

from .mongodb import MONGODB
from .mutant import Mutant, copied, replaced
from .postgresql import POSTGRESQL
from .redis import REDIS
from .sqlite import SQLITE

__all__ = ["TABLES", "Mutant", "copied", "replaced"]

TABLES: Final = {
    "sqlite": SQLITE,
    "postgresql": POSTGRESQL,
    "redis": REDIS,
    "mongodb": MONGODB,
}
