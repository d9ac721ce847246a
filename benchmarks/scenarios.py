"""What is measured, each for one subject and one run; `bench.py` pairs and repeats them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from subjects import OUTLAST, Stage, Subject, stage

CALLERS = 50
SETTLE_S = 3.0


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of everything; chosen so that a measurement takes seconds, not minutes."""

    runs: int
    drain: int
    enqueue: int
    bulk: int
    pace: int
    idle_s: float
    backlogs: tuple[int, int]
    measured: int
    """Tasks of a backlog over which processor time is taken."""

    def of(self, subject: Subject, n: int) -> int:
        """Peers get fewer tasks, as many as they finish in about the same time."""
        slower = {"outlast_adapter": 1, "huey_adapter": 12, "dbos_adapter": 60}
        return max(n // slower[subject.adapter] // CALLERS * CALLERS, 4 * CALLERS)


FULL = Sizes(5, 60_000, 60_000, 100_000, 200, 10.0, (10_000, 1_000_000), 10_000)
QUICK = Sizes(1, 20_000, 20_000, 20_000, 60, 3.0, (10_000, 100_000), 10_000)


def drain(subject: Subject, sizes: Sizes) -> dict[str, float]:
    """No-ops waiting, one worker: how fast they run, from the first one on until 99 % have run."""
    n = sizes.of(subject, sizes.drain)
    with stage(subject) as here:
        bulk = here.ask("bulk", n)["rate"]
        with here.worker() as work:
            work.reach(1)
            cpu_s, begun = work.cpu_s(), here.tally.count()
            work.reach(n)
            cpu_s, done = work.cpu_s() - cpu_s, here.tally.count()
        if subject is OUTLAST:
            _kept(here, n)
        moments = here.tally.values()
    most = n * 99 // 100
    seconds = (moments[most - 1] - moments[0]) / 1e9
    ready = (moments[0] - work.since_ns) / 1e9
    cpu_us = cpu_s / max(1, done - begun) * 1e6
    return {"drain": most / seconds, "cpu_us": cpu_us, "bulk": bulk, "ready_s": ready}


def _kept(here: Stage, n: int) -> None:
    """Ours claims a full record, a full log and fsync: ask the store whether that is so."""
    told = here.ask("check")
    if told != {"completed": n, "events": 3 * n, "durability": "fsync"}:
        raise SystemExit(f"The store holds something else than {n} tasks and their logs: {told}")


def enqueue(subject: Subject, sizes: Sizes) -> dict[str, float]:
    """Many callers in one process, each waiting for its task to be durable before the next."""
    with stage(subject) as here:
        return {"enqueue": here.ask("enqueue", sizes.of(subject, sizes.enqueue), CALLERS)["rate"]}


def bulk(subject: Subject, sizes: Sizes) -> dict[str, float]:
    """As many as possible, in the fastest way there is."""
    with stage(subject) as here:
        return {"bulk": here.ask("bulk", sizes.of(subject, sizes.bulk))["rate"]}


def latency(subject: Subject, sizes: Sizes) -> dict[str, float]:
    """From the call of enqueue to the start of the task, at a worker that has nothing to do."""
    with stage(subject) as here:
        here.ask("bulk", CALLERS)  # connections and caches are warm
        with here.worker() as work:
            work.reach(CALLERS)
            here.ask("pace", sizes.pace)
            work.reach(CALLERS + sizes.pace)
        # The warm-up's moments are larger than any span: they sort last.
        spans = [ns / 1e6 for ns in here.tally.values()[: sizes.pace]]
    return {"p50_ms": quantile(spans, 0.5), "p99_ms": quantile(spans, 0.99)}


def idle(subject: Subject, sizes: Sizes) -> dict[str, float]:
    """Processor time of a worker with nothing to do, in percent of one core."""
    with stage(subject) as here:
        here.ask("bulk", CALLERS)
        with here.worker() as work:
            work.reach(CALLERS)
            time.sleep(SETTLE_S)
            cpu_s, since = work.cpu_s(), time.monotonic()
            time.sleep(sizes.idle_s)
            return {"idle": (work.cpu_s() - cpu_s) / (time.monotonic() - since) * 100}


def backlog(sizes: Sizes, rounds: int) -> list[dict[str, float]]:
    """Ours alone: processor time per task with few waiting and with very many, in turns.

    The large backlog is filled once; each run takes a bite of it.
    """
    few, many = sizes.backlogs
    runs = []
    with stage(OUTLAST) as large:
        large.ask("bulk", many)
        for _ in range(rounds):
            with stage(OUTLAST) as small:
                small.ask("bulk", few)
                cpu_few = _cpu_us(small, few, 0)
            cpu_many = _cpu_us(large, sizes.measured, large.tally.count())
            runs.append({"few_us": cpu_few, "many_us": cpu_many})
    return runs


def _cpu_us(here: Stage, n: int, before: int) -> float:
    with here.worker() as work:
        work.reach(before + 1)
        cpu_s, begun = work.cpu_s(), here.tally.count()
        work.reach(before + n)
        return (work.cpu_s() - cpu_s) / (here.tally.count() - begun) * 1e6


def quantile(ordered: Sequence[float], q: float) -> float:
    return ordered[min(len(ordered) - 1, round(q * len(ordered)))]
