"""The load: which tasks there are, as a pure function of the seed.

Whoever knows the seed knows every task, its id included: a producer that was killed goes on where
its predecessor stopped, under the same ids, and the judge knows what should have become of each.
"""

from __future__ import annotations

from hashlib import sha256
from random import Random
from typing import Final, Literal

from msgspec import Struct

from outlast.core.model import NewTask, TaskId

Kind = Literal[
    "instant", "short", "long", "threaded", "flaky", "failing", "parent", "child", "unique",
    "limited", "delayed", "after", "doomed", "deadly",
]  # fmt: skip

BATCH: Final = 20
CHILDREN: Final = 3
NARROW: Final = "torture:narrow"
SLOTS: Final = 2
KEYS: Final = 8
FLAKY_FAILS: Final = 2
RETRY_MS: Final = 150
"""Exactly: the retries of the load have no jitter, so that an early one is a proof."""
DEADLY_EVERY: Final = 2_000
DEADLY_AT: Final = 500
SHARES: Final[dict[Kind, int]] = {
    "instant": 33, "short": 15, "long": 16, "threaded": 2, "flaky": 6, "failing": 3, "parent": 3,
    "unique": 6, "limited": 6, "delayed": 4, "after": 4, "doomed": 2,
}  # fmt: skip
"""Of a hundred tasks."""

_KINDS: Final = tuple(SHARES)
_WEIGHTS: Final = tuple(SHARES.values())


class Spec(Struct, frozen=True):
    """A task of the load."""

    kind: Kind
    task: NewTask


def task_id(*parts: object) -> TaskId:
    """An id that depends on nothing but these."""
    digits = sha256(":".join(map(str, parts)).encode()).hexdigest()
    return f"{digits[:8]}-{digits[8:12]}-8{digits[13:16]}-8{digits[17:20]}-{digits[20:32]}"


def spec(seed: int, n: int) -> Spec:
    """Task number n."""
    kind = kind_of(seed, n)
    draw = Random(f"{seed}:{n}:how")  # noqa: S311  # no secret
    more: dict[str, object] = {}
    payload = b"{}"
    if kind == "long":
        payload = b'{"ms":%d}' % draw.randint(1_500, 4_000)
        more = {"max_losses": 2} if draw.random() < 0.1 else {}
    elif kind == "failing":
        more = {"max_attempts": 3}
    elif kind == "parent":
        more = {"max_attempts": 50}  # its children are enqueued while the engine is away
    elif kind == "unique":
        more = {"unique_key": f"key-{draw.randrange(KEYS)}"}
    elif kind == "limited":
        more = {"limits": ((NARROW, 1),)}
    elif kind == "delayed":
        more = {"delay_ms": draw.randint(300, 1_500)}
    elif kind == "after":
        more = {"after": (task_id(seed, n - 1),)}
    elif kind == "doomed":  # half of them are cancelled while they wait, half while they run
        more = {"delay_ms": 120_000} if draw.random() < 0.5 else {}
    elif kind == "deadly":
        more = {"max_losses": 2}
    fields = {"max_losses": 20, "followed": draw.random() < 0.8, **more}
    task = NewTask(id=task_id(seed, n), type=kind, payload=payload, **fields)  # type: ignore[arg-type]
    return Spec(kind, task)


def kind_of(seed: int, n: int) -> Kind:
    if n % DEADLY_EVERY == DEADLY_AT:
        return "deadly"
    if (n + 1) % BATCH and _drawn(seed, n + 1) == "after":  # somebody waits for how this one ends
        return "failing" if n % 3 == 0 else "short"
    kind = _drawn(seed, n)
    return "instant" if kind == "after" and n % BATCH == 0 else kind


def _drawn(seed: int, n: int) -> Kind:
    return Random(f"{seed}:{n}").choices(_KINDS, _WEIGHTS)[0]  # noqa: S311  # no secret


def children(parent: TaskId) -> list[Spec]:
    """What a parent enqueues: the same tasks however often it runs."""
    return [
        Spec("child", NewTask(id=task_id(parent, i), type="child", parent_id=parent, max_losses=20))
        for i in range(CHILDREN)
    ]


def is_late_cancel(n: int, kind: Kind) -> bool:
    """Tasks that are cancelled when they should be over: a final state must not change."""
    return kind == "failing" or (kind == "instant" and n % 10 == 0)
