"""Schemathesis drives the whole API from its OpenAPI document, all checks on, steps in sequence.

In `make test` for a minute; `OUTLAST_TEST_DEEP` makes it as many times longer (`make proof`).
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.conformance.servers import url_for

FUZZ: Final = Path(__file__).parent / "fuzz"
KEY: Final = "a key for the fuzzer only"
DEEP: Final = int(os.environ.get("OUTLAST_TEST_DEEP", "0"))


@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
async def test_the_document_tells_the_truth(engine: str, tmp_path: Path) -> None:
    url = await asyncio.to_thread(url_for, engine, tmp_path)
    server = await asyncio.create_subprocess_exec(
        sys.executable, str(FUZZ / "served.py"), url,
        stdout=asyncio.subprocess.PIPE, env={**os.environ, "OUTLAST_KEYS": f"admin:{KEY}"},
    )  # fmt: skip
    assert server.stdout
    try:
        address = (await asyncio.wait_for(server.stdout.readline(), 30)).decode().strip()
        fuzzer = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "schemathesis.cli",
            "--config-file", str(FUZZ / "schemathesis.toml"),
            "run", f"{address}/openapi.json", "--checks", "all", "--no-color",
            "-H", f"Authorization: Bearer {KEY}", *_how_long(),
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, cwd=tmp_path,
            env={**os.environ, "SCHEMATHESIS_HOOKS": str(FUZZ / "hooks.py")},
        )  # fmt: skip
        told, _ = await fuzzer.communicate()
        assert fuzzer.returncode == 0, told.decode()
        assert server.returncode is None
    finally:
        if server.returncode is None:
            server.kill()
        await server.wait()


def _how_long() -> list[str]:
    if not DEEP:
        return ["--phases", "examples,fuzzing,stateful", "-n", "5", "--seed", "1"]
    return ["-n", str(10 * DEEP)]
