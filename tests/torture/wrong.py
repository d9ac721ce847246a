"""The mutants that torture must catch, by the names they have on every engine, and how.

The others of `tests/mutants` are wrong about what no load of torture does (steps, signals, rates,
pauses of queues, priorities), or are only late; the conformance suite catches those.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Trap(NamedTuple):
    """Faults and size that bring a mutant to light."""

    kinds: str
    faults: int = 2
    tasks: int = 600


PAUSED: Final = Trap("pause group", faults=4, tasks=1_200)
KILLED: Final = Trap("kill group,kill worker", tasks=700)
QUIET: Final = Trap("kill producer")

TRAPS: Final[dict[str, Trap]] = {
    "an outcome needs no fence": PAUSED,
    "a stale outcome is not told": PAUSED,
    "a worker is evicted before its time": Trap("pause worker briefly", faults=4),
    "a repeated turn claims again": Trap("lose replies", faults=5, tasks=900),
    "a loss is not counted": KILLED,
    "an attempt is not refunded": KILLED,
    "one loss too many": KILLED,
    "a third claim leaves the task claimable": QUIET,
    "a final state is overwritten": QUIET,
    "tasks come due early": QUIET,
    "a unique key is never released": QUIET,
    "a unique key is not enforced": QUIET,
    "nobody wakes the waiters of a freed slot": QUIET,
    "dependents are never released": QUIET,
    "dependents of the dead go on": QUIET,
    "a running task is not told of its cancel": QUIET,
    "a retry is not in the log": QUIET,
}

QUICK: Final = (
    "an outcome needs no fence",
    "an attempt is not refunded",
    "a unique key is not enforced",
)
"""A handful for every run of the tests."""
