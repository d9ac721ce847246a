"""The PostgreSQL engine: one schema, one function call per verb, through asyncpg."""

from __future__ import annotations

from outlast.engines.postgres.engine import connect

__all__ = ["connect"]
