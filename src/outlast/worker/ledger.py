"""The ledger: outcomes and news of attempts, waiting for the turn that carries them.

Nothing here waits for a timer. What comes in rings the worker; what comes in while a turn is under
way goes with the next one, and so batches form exactly when there is load. An entry is in one of
three places: `unsent`; `sent`, with the turn that is under way; or `refused`, when the engine could
not store the batch it was in, to be sent again in smaller batches. A task has at most one entry
in a batch: news and the outcome that follows them are merged.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from outlast.core.errors import LeaseLost
from outlast.core.model import Fence, NewEvent, Outcome, TaskId
from outlast.worker.outcomes import unrecordable

if TYPE_CHECKING:
    from outlast.worker.witness import Witness

MAX_BATCH: Final = 500
# Results may have 1 MiB each: a turn of 500 of them would be held in memory three times over.
MAX_BATCH_BYTES: Final = 8 * 1_048_576
# Beyond these the worker takes no more work, and a handler that streams has to wait.
MAX_UNSENT: Final = 2_000
MAX_CHUNKS: Final = 256

Waiters = dict[TaskId, list["asyncio.Future[None]"]]


class Ledger:
    """`ring` is called when there is something to send."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._unsent: dict[TaskId, Outcome] = {}
        self._sent: tuple[Outcome, ...] = ()
        self._refused: deque[tuple[Outcome, ...]] = deque()
        self._waiters: Waiters = {}
        self._sent_waiters: Waiters = {}
        self.witness: Witness | None = None
        """Hears what became of every turn."""

    def __len__(self) -> int:
        """Entries that are not known to be stored."""
        return len(self._unsent) + len(self._sent) + sum(map(len, self._refused))

    @property
    def waiting(self) -> bool:
        """Is there something that the next turn could carry?"""
        return bool(self._unsent or self._refused)

    @property
    def doubtful(self) -> bool:
        """Was something refused? Then nothing is to be claimed until it is clear what is wrong."""
        return bool(self._refused)

    @property
    def full(self) -> bool:
        """So far behind that taking more work would only make it worse."""
        return len(self) >= MAX_UNSENT

    # writing -------------------------------------------------------------------------------------

    def enter(self, outcome: Outcome) -> None:
        """An outcome, or news from the middle of an attempt (`state="running"`).

        Nothing comes behind an end: `LeaseLost`. What an earlier attempt at the same task had to
        say goes when a later one speaks, for that one has its lease.
        """
        held = self._unsent.get(outcome.id)
        if held is not None and held.fence != outcome.fence:
            self.drop(held.id, held.fence)
            held = None
        if held is not None and held.state != "running":
            raise lost(outcome.id)
        self._unsent[outcome.id] = outcome if held is None else merge(held, outcome)
        self._ring()

    async def report(self, outcome: Outcome) -> None:
        """Enter, and wait until it is stored; `LeaseLost` when it was refused."""
        self.enter(outcome)
        await self.stored(outcome.id)

    def stored(self, task_id: TaskId) -> asyncio.Future[None]:
        """Done when everything entered so far for this attempt is stored."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if task_id in self._unsent:
            self._waiters.setdefault(task_id, []).append(future)
        elif any(o.id == task_id for batch in (self._sent, *self._refused) for o in batch):
            self._sent_waiters.setdefault(task_id, []).append(future)
        else:
            future.set_result(None)
        return future

    def crowded(self, task_id: TaskId) -> bool:
        """Has this attempt more news waiting than it should?"""
        held = self._unsent.get(task_id)
        return held is not None and len(held.events) >= MAX_CHUNKS

    def drop(self, task_id: TaskId, fence: Fence) -> None:
        """The attempt is lost: nothing more is to be said for it."""
        held = self._unsent.get(task_id)
        if held is not None and held.fence == fence:
            del self._unsent[task_id]
            _break(self._waiters, task_id)
        if self.witness is not None:
            self.witness.forget(task_id, fence)

    # a turn --------------------------------------------------------------------------------------

    def take(self) -> tuple[Outcome, ...]:
        """What the next turn carries. `stored_by` or `refused_by` tells what became of it."""
        if self._refused:
            self._sent = self._refused.popleft()
        elif self._unsent:
            self._sent = self._cut()
            if self._waiters:
                for outcome in self._sent:
                    if outcome.id in self._waiters:
                        self._sent_waiters[outcome.id] = self._waiters.pop(outcome.id)
        return self._sent

    def stored_by(self, lost: Collection[tuple[TaskId, Fence]]) -> None:
        """The turn was answered; `lost` are the entries that changed nothing."""
        if self._sent_waiters:
            gone = set(lost)
            for outcome in self._sent:
                if (outcome.id, outcome.fence) in gone:
                    _break(self._sent_waiters, outcome.id)
                for future in self._sent_waiters.pop(outcome.id, ()):
                    if not future.done():
                        future.set_result(None)
        if self.witness is not None:
            self.witness.stored(self._sent, lost)
        self._sent = ()

    def keep(self) -> None:
        """Nobody knows what became of the turn: what it carried goes again."""
        if self._sent:
            self._refused.appendleft(self._sent)
            self._sent = ()

    def refused_by(self, problem: str) -> Outcome | None:
        """The engine will not store this batch: half of it next time, down to the one to blame.

        That one is replaced: an entry that can never be stored would hold up the leases of all.
        It is returned: its attempt has no more to say.
        """
        batch, self._sent = self._sent, ()
        if len(batch) > 1:
            half = len(batch) // 2
            self._refused.appendleft(batch[half:])
            self._refused.appendleft(batch[:half])
        elif batch:
            [only] = batch
            again = only if only.reason == "unrecordable" else unrecordable(only, problem)
            self._refused.append((again,))
            return only
        return None

    def _cut(self) -> tuple[Outcome, ...]:
        """The oldest entries that make up one batch."""
        unsent = self._unsent
        size = 0
        taken: list[Outcome] = []
        for outcome in unsent.values():
            size += _bytes(outcome)
            if taken and (size > MAX_BATCH_BYTES or len(taken) == MAX_BATCH):
                break
            taken.append(outcome)
        if len(taken) == len(unsent):
            unsent.clear()
        else:
            for outcome in taken:
                del unsent[outcome.id]
        return tuple(taken)


def merge(first: Outcome, then: Outcome) -> Outcome:
    """Two entries of one attempt as one: the later, with what the earlier had to tell."""
    told = first.events
    if first.progress is not None and then.state != "running":
        # Engines log the progress of running attempts; whoever follows is to see the last one too.
        data = b'{"progress":' + first.progress + b"}"
        told += (NewEvent(kind="progress", data=data, task_id=then.id),)
    return replace(
        then,
        progress=then.progress or first.progress,
        charges=first.charges + then.charges,
        pauses=first.pauses + then.pauses,
        steps=first.steps + then.steps,
        events=told + then.events,
        spawn=first.spawn + then.spawn,
    )


def news(task_id: TaskId, fence: Fence, progress: bytes | None, chunk: bytes | None) -> Outcome:
    """An entry from the middle of an attempt."""
    events = () if chunk is None else (NewEvent(kind="chunk", data=chunk, task_id=task_id),)
    return Outcome(id=task_id, fence=fence, progress=progress, events=events)


def _bytes(outcome: Outcome) -> int:
    size = len(outcome.result or b"") + len(outcome.error or b"")
    for event in outcome.events:
        size += len(event.data)
    for step in outcome.steps:
        size += len(step.value)
    for child in outcome.spawn:
        size += len(child.payload)
    return size


def lost(task_id: TaskId) -> LeaseLost:
    return LeaseLost(
        f"This attempt at task {task_id} is no longer the current one: it took too long without a"
        " sign of life, or was cancelled. What it writes is refused; it must stop."
    )


def _break(waiters: Waiters, task_id: TaskId) -> None:
    for future in waiters.pop(task_id, ()):
        if not future.done():
            future.set_exception(lost(task_id))
            future.exception()  # seen: nobody may be waiting any more
