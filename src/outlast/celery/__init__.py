"""Coming from Celery, or staying with it.

- `enlist(celery, app)`: an existing fleet of Celery workers runs this app's tasks.
- `from outlast.celery import app, shared_task`: functions that Celery ran become types of an
  Outlast app, called as before. Celery need not be installed for that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from outlast.celery.taken import AsyncResult, MaxRetriesExceededError, app, shared_task, sharing

if TYPE_CHECKING:
    from outlast.celery.fleet import enlist

__all__ = ["AsyncResult", "MaxRetriesExceededError", "app", "enlist", "shared_task", "sharing"]


def __getattr__(name: str) -> Any:
    """What needs Celery is imported when it is asked for."""
    if name == "enlist":
        from outlast.celery.fleet import enlist

        return enlist
    raise AttributeError(f"outlast.celery has no {name!r}.")
