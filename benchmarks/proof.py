"""The measured promises at full size, one after the other.

What `make test` shows in small: the model driven by thousands of programs, the seeded mutants, the
races and the costs, real processes killed and stopped, and the comparison with the peers. About an
hour; the exit code says whether everything held.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import Final

STEPS: Final[tuple[tuple[str, tuple[str, ...], dict[str, str]], ...]] = (
    ("The engine does what the model does, in twenty times as many walks",
     ("tests/conformance/test_model.py",), {"OUTLAST_TEST_DEEP": "20"}),
    ("Every seeded mutant is caught", ("tests/conformance/test_mutants.py",), {}),
    ("Races and costs", ("tests/conformance/test_race.py", "tests/conformance/test_cost.py"), {}),
    ("Lanes, limits, circuits, fairness",
     ("tests/conformance/test_lanes.py", "tests/conformance/test_limits.py",
      "tests/conformance/test_order.py", "tests/worker/test_lanes.py"), {}),
    ("Processes killed, stopped and blocked, ten times", ("tests/chaos",), {"TIMES": "10"}),
    ("Streams dropped and resumed", ("tests/http",), {}),
)  # fmt: skip


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> int:
    failed = []
    for title, tests, settings in STEPS:
        say(f"\n== {title}")
        began = time.monotonic()
        times = int(settings.pop("TIMES", "1"))
        command = [sys.executable, "-m", "pytest", "-q", "-s", "--timeout", "3600", *tests]
        environment = {**os.environ, **settings}
        codes = [
            subprocess.call(command, env=environment)  # noqa: S603  # our own tests
            for _ in range(times)
        ]
        if any(codes):
            failed.append(title)
        say(f"== {time.monotonic() - began:.0f} s")
    say("\n== Beside the peers")
    if subprocess.call([sys.executable, "benchmarks/bench.py"]):
        failed.append("Beside the peers")
    say("\nAll held." if not failed else "\nDid not hold: " + "; ".join(failed))
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
