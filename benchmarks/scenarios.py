"""What is measured, each for one subject and one run; `bench.py` pairs and repeats them."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Final

from stage import Failed, Stage, stage
from stores import PostgreSQL, Store
from subjects import Subject
from tally import Tally

CALLERS: Final = 50
SETTLE_S: Final = 3.0
DURABILITY: Final = {
    "sqlite": "fsync",
    "redis": "memory",  # AOF everysec: a killed server loses nothing, a power cut the last second
    "postgresql": "fsync",
    "mongodb": "replicated",
}

Measured = dict[str, float]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of everything; chosen so that a measurement takes seconds, not minutes."""

    runs: int
    drain: int
    enqueue: int
    bulk: int
    pace: int
    idle_s: float
    few: int
    """Tasks of a small backlog, and over how many of a large one processor time is taken."""
    many: int
    blocked: int
    held: int

    def of(self, subject: Subject, n: int) -> int:
        """Peers get fewer tasks, as many as they finish in about the same time."""
        return max(n // subject.slower // CALLERS * CALLERS, 4 * CALLERS)


FULL: Final = Sizes(5, 60_000, 60_000, 100_000, 200, 10.0, 10_000, 1_000_000, 100_000, 200_000)
QUICK: Final = Sizes(1, 20_000, 20_000, 20_000, 60, 3.0, 10_000, 100_000, 20_000, 40_000)


def drain(subject: Subject, store: Store, sizes: Sizes, workers: int = 1) -> Measured:
    """No-ops waiting: how fast they run, from when all workers run until 99 % are done."""
    n = sizes.of(subject, sizes.drain)
    with stage(subject, store) as here:
        here.ask("bulk", n)
        measured = _drain(here, n, workers)
        if subject.ours:
            _kept(here, n)
    return measured if workers == 1 else {f"{name}{workers}": v for name, v in measured.items()}


def _drain(here: Stage, n: int, workers: int = 1) -> Measured:
    with here.workers(workers) as work:
        work.reach(1)
        cpu_s, server_s, begun = work.cpu_s(), here.server_cpu_s(), here.tally.count()
        work.reach(n)
        cpu_s, server_s = work.cpu_s() - cpu_s, here.server_cpu_s() - server_s
        counted = max(1, here.tally.count() - begun)
    rate, first_ns = pace_of(here.tally, n, workers)
    return {
        "drain": rate,
        "cpu_us": cpu_s / counted * 1e6,
        "server_us": server_s / counted * 1e6,
        "ready_s": (first_ns - work.since_ns) / 1e9,
    }


def pace_of(tally: Tally, n: int, workers: int) -> tuple[float, int]:
    """Tasks a second from when every worker has begun until 99 % have run; when the first did."""
    firsts = sorted(row[0] for row in tally.by_process())
    if len(firsts) < workers:
        raise Failed(f"Only {len(firsts)} of {workers} workers had anything to do.")
    moments = tally.values()
    most = n * 99 // 100
    begun = bisect_right(moments, firsts[-1])
    if begun > most // 2:
        raise Failed("Half of the tasks had run before all workers did: too few of them.")
    seconds = (moments[most - 1] - firsts[-1]) / 1e9
    return (most - begun) / seconds, firsts[0]


def _kept(here: Stage, n: int) -> None:
    """Ours claims a full record and a full log: ask the store whether that is so."""
    told = here.ask("check")
    durability = DURABILITY[here.url.partition(":")[0]]
    if told != {"completed": n, "results": True, "events": 3.0, "durability": durability}:
        raise Failed(f"The store holds something else than {n} tasks and their logs: {told}")


def enqueue(subject: Subject, store: Store, sizes: Sizes) -> Measured:
    """Many callers in one process, each waiting for its task to be durable before the next."""
    n = sizes.of(subject, sizes.enqueue)
    with stage(subject, store) as here:
        return {"enqueue": n / here.ask("enqueue", n, CALLERS)}


def bulk(subject: Subject, store: Store, sizes: Sizes) -> Measured:
    """As many as possible, in the fastest way there is."""
    n = sizes.of(subject, sizes.bulk)
    with stage(subject, store) as here:
        return {"bulk": n / here.ask("bulk", n)}


def latency(subject: Subject, store: Store, sizes: Sizes) -> Measured:
    """From the call of enqueue to the start of the task, at a worker that has nothing to do."""
    with stage(subject, store) as here:
        here.ask("bulk", CALLERS)  # connections and caches are warm
        with here.workers() as work:
            work.reach(CALLERS)
            here.ask("pace", sizes.pace)
            work.reach(CALLERS + sizes.pace)
        # The warm-up's moments are larger than any span: they sort last.
        spans = [ns / 1e6 for ns in here.tally.values()[: sizes.pace]]
    return {"p50_ms": quantile(spans, 0.5), "p99_ms": quantile(spans, 0.99)}


def idle(subject: Subject, store: Store, sizes: Sizes) -> Measured:
    """Processor time of a worker with nothing to do, and of its server, in percent of one core."""
    with stage(subject, store) as here:
        here.ask("bulk", CALLERS)
        with here.workers() as work:
            work.reach(CALLERS)
            time.sleep(SETTLE_S)
            cpu_s, server_s, since = work.cpu_s(), here.server_cpu_s(), time.monotonic()
            time.sleep(sizes.idle_s)
            took_s = time.monotonic() - since
            measured = {"idle": (work.cpu_s() - cpu_s) / took_s * 100}
            if store.pid is not None:
                measured["idle_server"] = (here.server_cpu_s() - server_s) / took_s * 100
            return measured


PAIRED: Final[dict[str, Callable[[Subject, Store, Sizes], Measured]]] = {
    "drain": drain,
    "drain2": partial(drain, workers=2),
    "enqueue": enqueue,
    "bulk": bulk,
    "latency": latency,
    "idle": idle,
}
"""Scenarios that every subject takes part in."""


def backlog(subject: Subject, store: Store, sizes: Sizes, rounds: int) -> list[Measured]:
    """Processor time per task (worker and server) where few wait, very many, or many that cannot.

    The large backlogs are filled once; each run takes a bite of them.
    """
    runs = []
    with stage(subject, store) as large, stage(subject, store) as crowded:
        large.ask("bulk", sizes.many)
        crowded.ask("crowd", sizes.blocked)
        for _ in range(rounds):
            with stage(subject, store) as small:
                small.ask("bulk", sizes.few)
                crowded.ask("bulk", sizes.few)
                runs.append(
                    {
                        "few_us": _cpu_us(small, sizes.few),
                        "many_us": _cpu_us(large, sizes.few),
                        "blocked_us": _cpu_us(crowded, sizes.few),
                    }
                )
    return runs


def _cpu_us(here: Stage, n: int) -> float:
    here.store.settle(here.url)
    before = here.tally.count()
    with here.workers() as work:
        work.reach(before + 1)
        cpu_s, begun = work.cpu_s() + here.server_cpu_s(), here.tally.count()
        work.reach(before + n)
        cpu_s = work.cpu_s() + here.server_cpu_s() - cpu_s
        return cpu_s / (here.tally.count() - begun) * 1e6


def held(subject: Subject, store: PostgreSQL, sizes: Sizes, rounds: int) -> list[Measured]:
    """A drain while a transaction is open from before the first enqueue on, and one without."""
    runs = []
    for _ in range(rounds):
        measured: Measured = {}
        for name in ("free", "held"):
            with stage(subject, store) as here:
                idle: AbstractContextManager[None] = nullcontext()
                with store.snapshot(here.url) if name == "held" else idle:
                    here.ask("bulk", sizes.held)
                    measured[name] = _drain(here, sizes.held)["drain"]
        runs.append(measured)
    return runs


def quantile(ordered: Sequence[float], q: float) -> float:
    return ordered[min(len(ordered) - 1, round(q * len(ordered)))]
