"""Wrong engines, made on purpose: the SQLite engine with one line changed.

A suite that passes them all tests nothing. Each mutant is a statement of a `.sql` file or a
function, and the text in it to replace; a text that is no longer there is an error.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import CodeType, FunctionType
from typing import Any, Final, NamedTuple

from outlast.engines._shared import statements

PACKAGE: Final = "outlast.engines.sqlite"


class Mutant(NamedTuple):
    """`where` is `file.sql:statement`, `module:function` or `module:Class.method`."""

    name: str
    where: str
    old: str
    new: str


MUTANTS: Final = (
    Mutant("an outcome needs no fence", "exchange:apply",
           "task.fence == outcome.fence", 'task.state == "running"'),
    Mutant("a stale outcome is not told", "exchange:apply",
           "lost.append((outcome.id, outcome.fence))", "pass"),
    Mutant("the end of a lost attempt is taken for known", "ends:finish",
           "None if outcome is None else task.fence", "task.fence"),
    Mutant("a repeated turn claims again", "exchange:exchange",
           "repeated = turn.token in tokens", "repeated = False"),
    Mutant("a third claim leaves the task claimable", "exchange.sql:claim",
           "where seq in (", "where number < 2 and seq in ("),
    Mutant("a final state is overwritten", "alter:_cancel",
           "task.state in FINAL", 'task.state == "completed"'),
    Mutant("due tasks stay parked", "exchange.sql:unpark_due",
           "wake_at <= ?", "wake_at <= ? - 3000"),
    Mutant("tasks come due early", "exchange.sql:unpark_due",
           "wake_at <= ?", "wake_at <= ? + 3000"),
    Mutant("a slot leaks when a task is put back", "ends:put_back",
           "free(tx, task)", "pass"),
    Mutant("nobody wakes the waiters of a freed slot", "tx:Tx.open_key",
           "if key not in self._opened:", "if False:"),
    Mutant("a circuit never opens", "exchange:_judge",
           "gate.charge(limit, gauge, task.id, charge.ok, tx.now)", "None"),
    Mutant("a pause stops nobody", "exchange:_judge",
           "gate.pause(tx.gauge(key), tx.now + pause_ms)", "pass"),
    Mutant("the second limit is not looked at", "exchange:Claiming._admitted",
           "wanted = limits_of(text)", "wanted = limits_of(text)[:1]"),
    Mutant("a raised limit is noticed by nobody", "records:limit_changed",
           "tx.open_key(other)", "pass"),
    Mutant("a unique key is never released", "exchange.sql:release_key",
           "and until is null", "and until is not null"),
    Mutant("a unique key is not enforced", "enqueue:_reserve",
           "row[1] is None or row[1] > tx.now", "row[1] is not None and row[1] > tx.now"),
    Mutant("dependents are never released", "ends:settle",
           "unpark(tx, down)", "pass"),
    Mutant("one upstream of two is enough", "ends:settle",
           "down.awaits > 1", "down.awaits > 2"),
    Mutant("dependents of the dead go on", "ends:settle",
           "not ok and", "not ok and down.number and"),
    Mutant("a redrive restores no dependents", "alter:_restore_dependents",
           "restored = [task.seq]", "restored = []"),
    Mutant("a loss is not counted", "exchange.sql:put_back",
           "losses = losses + ?", "losses = losses + 0 * ?"),
    Mutant("an attempt is not refunded", "exchange.sql:put_back",
           "attempt = attempt - ?", "attempt = attempt - 0 * ?"),
    Mutant("one loss too many", "sweep:_rescue",
           "task.losses + 1 >= task.max_losses", "task.losses >= task.max_losses"),
    Mutant("a worker is evicted before its time", "sweep.sql:lapsed",
           "lease_mono <= ?", "lease_mono <= ? + 1500"),
    Mutant("a lapsed worker is spared", "sweep.sql:lapsed",
           "lease_mono <= ?", "lease_mono <= ? - 1500"),
    Mutant("a paused queue is served", "exchange:_paused",
           '.get("paused")', '.get("stopped")'),
    Mutant("a running task is not told of its cancel", "exchange.sql:cancelled",
           "cancel is not null", "cancel is null"),
    Mutant("a cancel is lost when the task is handed back", "ends:give_back",
           "if task.cancel is None:", "if True:"),
    Mutant("a retry is not in the log", "ends:put_back",
           'if task.followed or verdict in ("failed", "timed_out", "stalled"):', "if False:"),
    Mutant("a refused outcome is in the log", "exchange:apply",
           "elif not (", 'elif task and tx.log(task, "chunk", b"1") or not ('),
    Mutant("a signal before the wait is lost", "ends:put_back",
           "if task.inbox else 0", "if False else 0"),
    Mutant("steps are not given back", "exchange:_lease",
           "if row[22] else ()", "if False else ()"),
    Mutant("priority does not matter", "exchange.sql:ready",
           "order by priority, rank, id", "order by rank, id"),
    Mutant("the first want takes everything", "exchange:claim",
           "n = min(n, want.n)", "pass"),
)  # fmt: skip


@contextmanager
def applied(mutant: Mutant) -> Iterator[None]:
    """The engine is wrong in this one way."""
    module, _, name = mutant.where.partition(":")
    if module.endswith(".sql"):
        table = statements(PACKAGE, module)
        right = table[name]
        table[name] = _replaced(right, mutant)
        try:
            yield
        finally:
            table[name] = right
        return
    function: Any = import_module(f"{PACKAGE}.{module}")
    for part in name.split("."):
        function = getattr(function, part)
    code = function.__code__
    function.__code__ = _code(function, mutant)
    try:
        yield
    finally:
        function.__code__ = code


def _replaced(text: str, mutant: Mutant) -> str:
    if text.count(mutant.old) != 1:
        raise LookupError(f"{mutant.where} no longer has {mutant.old!r} once; mend the mutant")
    return text.replace(mutant.old, mutant.new)


def _code(function: FunctionType, mutant: Mutant) -> CodeType:
    """The code of the changed function: all who imported it have the same function object."""
    source = _replaced(textwrap.dedent(inspect.getsource(function)), mutant)
    made: dict[str, Any] = {}
    text = f"from __future__ import annotations\n{source}"
    exec(compile(text, f"<{mutant.name}>", "exec"), dict(function.__globals__), made)  # noqa: S102
    changed: FunctionType = made[function.__name__]
    return changed.__code__
