"""Measures Outlast side by side with its peers on every engine, and prints Markdown.

`bench.py` runs everything five times, an hour and a half; `bench.py --quick --engine redis` one
engine once, some minutes. Runs are paired: each round measures every subject once, one after the
other, and a ratio is taken within its round, so that a busy minute of the machine hits both sides.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sys
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import NamedTemporaryFile

import report
import scenarios
from report import Report
from scenarios import FULL, PAIRED, QUICK, Measured, Sizes
from stage import Failed
from stores import PostgreSQL, Store, running
from subjects import CACHE, SUBJECTS, Subject, install

NAMES = (*PAIRED, "backlog", "held")
SMALLER = {"mongodb": 300_000}
"""The largest backlog where a million takes too long to fill."""


def main() -> int:
    parser = argparse.ArgumentParser(description="Outlast and its peers, side by side.")
    parser.add_argument("--engine", action="append", choices=SUBJECTS, help="may be repeated")
    parser.add_argument("--only", action="append", choices=NAMES, help="may be repeated")
    parser.add_argument("--peer", action="append", help="beside Outlast, not all; may be repeated")
    parser.add_argument("--quick", action="store_true", help="one round, smaller sizes")
    parser.add_argument("--runs", type=int, help="how many rounds")
    parser.add_argument("--json", type=Path, help="a file for all that was measured")
    parser.add_argument("--strict", action="store_true", help="fail when a target is missed")
    told = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # servers are stopped on the way out
    sizes = QUICK if told.quick else FULL
    rounds = told.runs or sizes.runs
    results: dict[str, object] = {}
    met = True
    for engine in told.engine or SUBJECTS:
        subjects = SUBJECTS[engine]
        if told.peer is not None:
            subjects = tuple(s for s in subjects if s.ours or s.name in told.peer)
        for subject in subjects:
            install(subject)
        fitting = replace(sizes, many=min(sizes.many, SMALLER.get(engine, sizes.many)))
        with running(engine) as store:
            written, runs = measure(engine, store, subjects, fitting, told.only or NAMES, rounds)
        results[engine] = {"runs": runs, "targets": written.verdicts}
        met = met and all(written.verdicts.values())
        sys.stdout.write("\n".join(written.lines) + "\n\n")
        sys.stdout.flush()
    if told.json is not None:
        told.json.write_text(json.dumps({"machine": machine(), "engines": results}, indent=1))
    return int(told.strict and not met)


def measure(
    engine: str,
    store: Store,
    subjects: tuple[Subject, ...],
    sizes: Sizes,
    names: tuple[str, ...],
    rounds: int,
) -> tuple[Report, dict[str, list[Measured]]]:
    """All that was asked for on one engine: the report, and the runs by subject or scenario."""
    since, written = time.monotonic(), Report([f"### {store.about}", "", machine(), ""])
    runs: defaultdict[str, list[Measured]] = defaultdict(list)
    failed: set[tuple[str, str]] = set()
    for name in (name for name in PAIRED if name in names):
        for number in range(rounds):
            for subject in subjects:
                left_out = (subject.name, name) in failed
                if left_out or (subject.only and name not in subject.only):
                    continue
                try:
                    measured = PAIRED[name](subject, store, sizes)
                except Failed as problem:
                    if subject.ours:
                        raise SystemExit(str(problem)) from problem
                    failed.add((subject.name, name))  # it does not spoil hours of the rest
                    note(f"{name} of {subject.name} is left out from here on: {problem}")
                    continue
                runs[subject.name].append(measured)
                shown = "  ".join(f"{key} {value:,.4g}" for key, value in measured.items())
                note(f"{engine}  {name} {number + 1}/{rounds}  {subject.name:13} {shown}")
    ours = subjects[0]
    if runs:
        report.table(written, runs, subjects, engine)
        report.against_each(written, runs, subjects, ("drain", "drain2", "enqueue"))
    if "backlog" in names:
        runs["backlog"] = scenarios.backlog(ours, store, sizes, rounds)
        report.backlogs(written, runs["backlog"], sizes)
    if "held" in names and isinstance(store, PostgreSQL):
        runs["held"] = scenarios.held(ours, store, sizes, rounds)
        report.snapshots(written, runs["held"], sizes)
    written.lines += ["", *(f"- {subject.name}: {subject.about}" for subject in subjects)]
    written.lines += [f"- {peer} failed in {name}." for peer, name in sorted(failed)]
    took = (time.monotonic() - since) / 60
    written.lines.append(f"\nMedians of {rounds} paired rounds; {took:.0f} minutes.")
    return written, runs


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
    sys.exit(main())
