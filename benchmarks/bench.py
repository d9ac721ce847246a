"""Measures Outlast side by side with its peers on SQLite and prints the figures as Markdown.

`bench.py` runs everything five times, a quarter of an hour; `bench.py --quick` once, about two.
Runs are paired: each round measures every subject once, one after the other, and a ratio is taken
within its round, so that a busy minute of the machine hits both sides.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from statistics import median
from tempfile import NamedTemporaryFile

import report
import scenarios
from scenarios import FULL, QUICK, Sizes
from subjects import CACHE, OUTLAST, PEERS, Subject, install

Scenario = Callable[[Subject, Sizes], dict[str, float]]

PAIRED: dict[str, Scenario] = {
    "drain": scenarios.drain,
    "enqueue": scenarios.enqueue,
    "bulk": scenarios.bulk,
    "latency": scenarios.latency,
    "idle": scenarios.idle,
}
NAMES = (*PAIRED, "backlog")


def main() -> None:
    parser = argparse.ArgumentParser(description="Outlast and its peers, side by side.")
    parser.add_argument("--quick", action="store_true", help="one round, smaller sizes")
    parser.add_argument("--only", action="append", choices=NAMES, help="may be given several times")
    parser.add_argument("--runs", type=int, help="how many rounds")
    parser.add_argument("--alone", action="store_true", help="without the peers")
    told = parser.parse_args()
    sizes = QUICK if told.quick else FULL
    rounds = told.runs or sizes.runs
    names = told.only or NAMES
    subjects = (OUTLAST,) if told.alone else (OUTLAST, *PEERS)
    for subject in subjects:
        install(subject)

    since, where = time.monotonic(), machine()
    runs: defaultdict[str, list[dict[str, float]]] = defaultdict(list)
    for name in (name for name in PAIRED if name in names):
        for number in range(rounds):
            for subject in subjects:
                measured = PAIRED[name](subject, sizes)
                runs[subject.name].append(measured)
                shown = "  ".join(f"{key} {value:,.4g}" for key, value in measured.items())
                note(f"{name} {number + 1}/{rounds}  {subject.name:12} {shown}")
    lines = [where, ""]
    if runs:
        lines += [*report.table(runs), ""]
    if any("drain" in run or "enqueue" in run for run in runs[OUTLAST.name]) and not told.alone:
        lines += [*report.against_each(runs), ""]
    if "backlog" in names:
        lines += [*report.backlogs(scenarios.backlog(sizes, rounds), sizes.backlogs), ""]
    lines += [f"- {subject.name}: {subject.about}" for subject in subjects]
    took = (time.monotonic() - since) / 60
    lines.append(f"\nMedians of {rounds} paired runs; {took:.0f} minutes.")
    sys.stdout.write("\n".join(lines) + "\n")


def note(line: str) -> None:
    """Progress; standard output is for the report."""
    sys.stderr.write(line + "\n")


def machine() -> str:
    load = os.getloadavg()[0]
    return (
        f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
        f" (load {load:.1f} before it began),"
        f" {platform.python_implementation()} {platform.python_version()},"
        f" fdatasync {fsync_us():.0f} µs"
    )


def fsync_us() -> float:
    """What one durable commit costs here, at least."""
    spans = []
    with NamedTemporaryFile(dir=CACHE) as file:
        for _ in range(100):
            file.write(b"x" * 4096)
            file.flush()
            begun = time.perf_counter()
            os.fdatasync(file.fileno())
            spans.append(time.perf_counter() - begun)
    return median(spans) * 1e6


if __name__ == "__main__":
    main()
