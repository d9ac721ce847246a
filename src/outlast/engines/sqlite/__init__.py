"""The embedded engine: SQLite through apsw, in a file (`sqlite:///jobs.db`) or in memory."""

from __future__ import annotations

from outlast.engines.sqlite.engine import connect

__all__ = ["connect"]
