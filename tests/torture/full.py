"""`make torture`: every engine at full size, then every wrong engine that torture must catch.

python -m tests.torture.full [ENGINE …]
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from tests.mutants import TABLES, copied

from .harness import Result, target, torture
from .wrong import TRAPS

TASKS, FAULTS, STALE = 20_000, 30, 100


def full_size(engine: str, folder: Path) -> bool:
    report = folder / "report.json"
    with target(engine, folder) as at:
        options = ("--tasks", TASKS, "--faults", FAULTS, "--report", report)
        result = torture(at, *options, within_s=900)
    told = result.report
    stale = told.get("seen", {}).get("stale writes refused", 0)
    _say(f"{engine}: {'passed' if result.code == 0 else 'FAILED'}, seed {told.get('seed')}")
    _say(f"  {told.get('tasks')} tasks in {told.get('seconds')} s, {stale} stale writes refused")
    _say(f"  faults: {told.get('faults')}")
    _say(f"  first claim after a fault of the engine, ms: {told.get('recovery_ms')}")
    _say(f"  run again after a kill, p50 and p99 ms: {told.get('rerun_ms')}")
    _explain(result)
    return result.code == 0 and stale >= STALE


def wrong_engines(engine: str, folder: Path) -> bool:
    mutants = {mutant.name: mutant for mutant in TABLES[engine]}
    missed = []
    with target(engine, folder) as at:
        for name, trap in TRAPS.items():
            since = time.monotonic()
            with tempfile.TemporaryDirectory() as copy:
                result = torture(
                    at, "--tasks", trap.tasks, "--faults", trap.faults, "--kinds", trap.kinds,
                    "--lease", "1s", env=copied(mutants[name], Path(copy)),
                )  # fmt: skip
            by = ", ".join(result.broken) or "NOT CAUGHT"  # also when it only saw too little
            _say(f"  {name}: {by} ({time.monotonic() - since:.0f} s)")
            if not result.broken:
                missed.append(name)
    return not missed


def main() -> int:
    fine = True
    for engine in sys.argv[1:] or TABLES:
        with tempfile.TemporaryDirectory() as folder:
            fine &= full_size(engine, Path(folder))
            _say(f"{engine}: wrong on purpose")
            fine &= wrong_engines(engine, Path(folder))
    return 0 if fine else 1


def _explain(result: Result) -> None:
    for invariant, told in result.broken.items():
        _say(f"  {invariant}: {told}")
    for what in result.report.get("unseen", ()):
        _say(f"  not seen: {what}")
    if result.code not in (0, 1):
        _say(result.said)


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201  # it is a program


if __name__ == "__main__":
    sys.exit(main())
