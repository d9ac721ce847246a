"""The MongoDB engine: a replica set of MongoDB 6 or later, through asynchronous PyMongo."""

from __future__ import annotations

from outlast.engines.mongo.engine import connect

__all__ = ["connect"]
