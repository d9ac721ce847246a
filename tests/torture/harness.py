"""How the tests run `outlast torture`: as a command, on a server of its own, or as a mutant."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.conformance.servers import server

# What must survive the kill of a server has to be on its disk when it was acknowledged.
DURABLE: Final[dict[str, dict[str, Any]]] = {"redis": {"fsync": "always"}}


@dataclass(frozen=True)
class Target:
    """An engine to torture, and the command that starts its server."""

    url: str
    command: str | None = None


@contextmanager
def target(engine: str, folder: Path) -> Iterator[Target]:
    if engine == "sqlite":
        yield Target(f"sqlite:///{folder / 'tasks.db'}")
        return
    made = server(engine).Server(**DURABLE.get(engine, {}))
    try:
        made.run()  # a replica set has to be initiated once
        made.kill()
        yield Target(made.url, shlex.join(made.command))
    finally:
        made.stop()


@dataclass(frozen=True)
class Result:
    """What the command answered."""

    code: int
    report: Mapping[str, Any]
    said: str

    @property
    def broken(self) -> dict[str, str]:
        """Invariant -> what is wrong."""
        verdicts = self.report.get("verdicts", [])
        return {v["id"]: str(v["example"]) for v in verdicts if v["violations"]}


def torture(
    at: Target, *options: object, env: Mapping[str, str] | None = None, within_s: float = 110
) -> Result:
    command = [sys.executable, "-m", "outlast", "torture", "--engine", at.url, "--json"]
    if at.command is not None:
        command += ["--server", at.command]
    done = subprocess.run(  # noqa: S603  # ourselves
        [*command, *map(str, options)],
        env=env or os.environ, cwd=Path(__file__).parent, capture_output=True, text=True,
        timeout=within_s, check=False,
    )  # fmt: skip
    report = json.loads(done.stdout) if done.stdout else {}
    return Result(done.returncode, report, done.stderr)
