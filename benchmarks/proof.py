"""The measured promises at full size, one after the other.

What `make test` shows in small: the model driven by thousands of programs, the seeded mutants, the
conformance suite on every engine, real processes and servers killed and stopped, `outlast torture`,
and the comparison with the peers. Several hours; the exit code says whether everything held.

`proof.py WORD…` takes only the steps whose title has one of the words.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
SERVERS: Final = ("postgresql", "redis", "mongodb")
EVERYWHERE: Final = {"OUTLAST_TEST_ENGINES": ",".join(("sqlite", "memory", *SERVERS))}


@dataclass(frozen=True, slots=True)
class Step:
    """A command that must end well, as often as it says."""

    title: str
    command: tuple[str, ...]
    settings: dict[str, str] = field(default_factory=dict)
    times: int = 1

    def holds(self) -> bool:
        environment = {**os.environ, "CI": "true", **self.settings}  # no server, no skip
        runs = (
            subprocess.call(self.command, env=environment, cwd=ROOT)  # noqa: S603  # our own
            for _ in range(self.times)
        )
        return not any(list(runs))


def tests(*paths: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "pytest", "-q", "-s", "--timeout", "3600", *paths)


STEPS: Final = (
    Step(
        "Conformance: model, races, golden traces and costs, on every engine",
        tests("tests/conformance", "--ignore", "tests/conformance/test_mutants.py"),
        EVERYWHERE,
    ),
    Step(
        "Every engine does what the model does, in twenty times as many walks",
        tests("tests/conformance/test_model.py"),
        {**EVERYWHERE, "OUTLAST_TEST_DEEP": "20"},
    ),
    Step(
        "Every seeded mutant of every engine is caught",
        tests("tests/conformance/test_mutants.py"),
        {"OUTLAST_TEST_MUTANTS": "all"},
    ),
    Step(
        "What only one server has to bear: restarts, failover, clusters, proxies, errors",
        tests("tests/postgres", "tests/redis", "tests/mongo"),
    ),
    Step("Lanes in a worker", tests("tests/worker/test_lanes.py")),
    Step("Processes killed, stopped and blocked, ten times", tests("tests/chaos"), times=10),
    Step(
        "Steps and sagas under two hundred kills",
        tests("tests/chaos/test_durable.py"),
        {"OUTLAST_TEST_DEEP": "1"},
    ),
    Step("Torture of every engine, and of its mutants", ("make", "torture")),
    Step("Streams dropped and resumed", tests("tests/http")),
    Step(
        "The OpenAPI document is true: Schemathesis, every check, on SQLite and PostgreSQL",
        tests("tests/http/test_fuzz.py"),
        {"OUTLAST_TEST_DEEP": "5"},
    ),
    Step(
        "A thousand streams dropped and resumed, a thousand notifications over a killed server",
        tests("tests/http/test_many.py"),
        {"OUTLAST_TEST_DEEP": "1"},
    ),
    Step(
        "Slow clients, floods and ten thousand connections",
        tests("tests/http/test_bounds.py"),
        {"OUTLAST_TEST_DEEP": "1"},
    ),
    Step(
        "The dashboard: from an event to the pixel, and a hundred thousand tasks",
        tests("tests/board/test_promises.py"),
        {"OUTLAST_TEST_DEEP": "1"},
    ),
    Step(
        "An agent answers within 200 ms while a thousand tasks run; service and bridge are killed",
        tests("tests/agents/test_services.py"),
        {"OUTLAST_TEST_DEEP": "1"},
    ),
    Step(
        "HTTP under load: beside a bare insert, and while a thousand tasks run",
        tests("tests/http/test_load.py"),
        {"OUTLAST_TEST_DEEP": "10"},
    ),
    Step(
        "A Celery fleet killed in the middle of a thousand tasks; a storm of 6,000 retries",
        tests("tests/systems/test_celery_fleet.py", "tests/systems/test_asynctaskflow.py"),
        {"OUTLAST_TEST_DEEP": "1"},
    ),
    Step(
        "A graph of 10,000 nodes and 100,000 sleepers on every engine",
        tests("tests/worker/test_large.py"),
        {"OUTLAST_TEST_DEEP": "1"},
    ),
    Step(
        "A schedule of every second while twenty workers are killed, for two minutes",
        tests("tests/chaos/test_ticking.py"),
        {"OUTLAST_TEST_DEEP": "1"},
    ),
    Step(
        "Schedules in every zone over twenty years, beside a minute-by-minute oracle",
        tests("tests/core/test_cron.py"),
        {"OUTLAST_TEST_DEEP": "1"},
    ),
    *(
        Step(
            f"Beside the peers: {engine}",
            (sys.executable, "benchmarks/bench.py", "--strict", "--engine", engine),
        )
        for engine in ("sqlite", *SERVERS)
    ),
)


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> int:
    words = [word.lower() for word in sys.argv[1:]]
    steps = [s for s in STEPS if not words or any(word in s.title.lower() for word in words)]
    if not steps:
        say("No step has one of these words in its title:")
        say("\n".join(f"  {step.title}" for step in STEPS))
        return 2
    failed = []
    for step in steps:
        say(f"\n== {step.title}")
        began = time.monotonic()
        if not step.holds():
            failed.append(step.title)
        say(f"== {time.monotonic() - began:.0f} s")
    say("\nAll held." if not failed else "\nDid not hold: " + "; ".join(failed))
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
