"""Several processes on one SQLite file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter

from outlast import Outlast, ops

from .fleet import Fleet, alive, limited_app, until
from .test_killed import LONG


async def test_two_processes_drain_20000_tasks_each_once(fleet: Fleet) -> None:
    total = 20_000
    async with Outlast(fleet.url) as app:
        await ops.pause(app, "default")
        for _ in range(total // 1_000):
            await fleet.enqueue("quick", 1_000, {"n": 1}, followed=False)
        fleet.supervisor(children=2, **LONG, concurrency=250)
        await fleet.ready(2)  # one that is up first would leave nothing to the other
        await ops.resume(app, "default")
    await fleet.all_are("completed", total, within_s=60)
    runs = Counter(line.task for line in fleet.lines("start"))
    assert len(runs) == total
    assert set(runs.values()) == {1}
    by_process = Counter(line.pid for line in fleet.lines("start"))
    assert len(by_process) == 2
    assert min(by_process.values()) > total // 10, f"one of them starved: {by_process}"
    for process in fleet.processes:
        assert "locked" not in process.output
        assert "WARNING" not in process.output


async def test_slots_are_never_exceeded_and_a_killed_holder_gives_its_slot_back(
    fleet: Fleet,
) -> None:
    async with limited_app(fleet.url):  # publishes the definition
        pass
    supervisor = fleet.supervisor(children=4, **LONG)
    await fleet.ready(4)
    await fleet.enqueue("narrow", 40, {"seconds": 0.1}, limits=(("narrow", 1),))
    await fleet.started(10)
    victim = fleet.lines("start")[-1].pid
    # Into the same file, so that the order of what happened is one order.
    with fleet.ledger.open("a") as ledger:
        ledger.write(f"killed - 0 {victim}\n")
        ledger.flush()
        os.kill(victim, signal.SIGKILL)
    await until(lambda: not alive(victim))
    await fleet.all_are("completed", 40)
    holders: dict[tuple[str, int], int] = {}
    most = 0
    for line in fleet.lines():
        if line.kind == "start":
            holders[line.task, line.number] = line.pid
        elif line.kind == "end":
            holders.pop((line.task, line.number), None)
        else:
            holders = {key: pid for key, pid in holders.items() if pid != line.pid}
        most = max(most, len(holders))
    assert most == 3
    [gauge] = await fleet.engine.gauges(["narrow"])
    assert (gauge.used, gauge.waiting) == (0, 0)
    assert len(supervisor.children) == 4


def test_processes_that_open_a_new_file_together_all_succeed(fleet: Fleet) -> None:
    code = """
import asyncio, sys
from outlast.engine import connect
async def main():
    engine = connect(sys.argv[1])
    await engine.open()
    await engine.close()
asyncio.run(main())
"""
    for round in range(3):
        url = f"sqlite:///{fleet.folder}/new-{round}.db"
        command = [sys.executable, "-c", code, url]
        opened = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(6)]  # noqa: S603
        said = [process.communicate(timeout=60)[1].decode() for process in opened]
        assert [process.returncode for process in opened] == [0] * 6, json.dumps(said)
