"""The Redis and Valkey engine: one Lua script per verb, every key of a namespace in one slot."""

from __future__ import annotations

from outlast.engines.redis.engine import connect

__all__ = ["connect"]
