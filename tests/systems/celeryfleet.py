"""An application of Celery whose fleet runs Outlast's tasks, as the processes under test import it.

`$FLEET_LEDGER` is a file in which handlers note what they do, in single appends: the truth about
what ran. `$FLEET_BROKER` is where Celery has its queues, `$FLEET_LEASE_MS` how long a lease holds.
"""

from __future__ import annotations

import os
import time

from celery import Celery

from outlast import Context, Outlast, SyncContext
from outlast.celery import enlist, sharing

app = Outlast()
celery = Celery("celeryfleet", broker=os.environ["FLEET_BROKER"])
celery.conf.update(task_time_limit=1)  # of Celery's own tasks: it must not end a runner
LEASE_MS = int(os.environ["FLEET_LEASE_MS"])
# With nothing to do they stay for longer than any test takes.
enlist(
    celery, app, runners=2, span="10m", concurrency=10, lease_ms=LEASE_MS, beat_ms=500, sweep_ms=300
)
shared_task = sharing(app)

_fd = os.open(os.environ["FLEET_LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def note(kind: str, ctx: Context | SyncContext, n: int) -> None:
    os.write(_fd, f"{kind} {ctx.task_id} {n} {os.getpid()}\n".encode())


@app.task(max_losses=10)
async def counts(ctx: Context, n: int) -> int:
    note("ran", ctx, n)
    await ctx.emit(f"{n}")
    return n


@app.task(max_losses=10)
def counts_in_a_thread(ctx: SyncContext, n: int) -> int:
    note("ran", ctx, n)
    time.sleep(0.01)
    return n


@shared_task(max_retries=10, default_retry_delay=1)
def taken(n: int) -> int:
    return n


@celery.task
def native(n: int) -> None:
    """A task of Celery's own, beside ours."""
    os.write(_fd, f"native - {n} {os.getpid()}\n".encode())


@celery.task
def hands_over(n: int) -> None:
    """A task of Celery's own that enqueues one of ours, and so has the app open from then on."""
    os.write(_fd, f"handed {taken.delay(n).id} {n} {os.getpid()}\n".encode())
