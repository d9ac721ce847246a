"""The race: many careless workers, leases that expire, limits; the log must show no foul play."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import Counter

import pytest

from . import racer
from .language import Scene, said
from .racer import Diary, race
from .servers import SHARED, chosen

TASKS = 150
SLOTS = {"p": 2, "u": 1}


async def prepare(e: Scene) -> None:
    await e.limit("p:*", slots=2)
    await e.limit("u:*", slots=1)
    await e.batch(*[e.new(f"t{n}", limits=limits_of(n), max_losses=10_000) for n in range(TASKS)])


def limits_of(n: int) -> list[str]:
    return [f"p:{n % 3}", f"u:{n % 5}"]


async def judge(e: Scene, diaries: list[Diary]) -> None:
    """What the workers were told, and what the log tells, in the order of the commits."""
    given = Counter((task, fence) for diary in diaries for task, fence in diary.given)
    assert max(given.values()) == 1, "a fence was given twice"
    completed = Counter(task for diary in diaries for task in diary.completed)
    assert sorted(completed.values()) == [1] * TASKS, "completed other than once"
    running: set[str] = set()
    held: Counter[str] = Counter()
    claims = 0
    keys_of = {e.id(f"t{n}"): limits_of(n) for n in range(TASKS)}
    done: Counter[str] = Counter()
    for event in await e.events(limit=1_000):
        assert event.task_id is not None
        assert event.kind in ("state", "done"), "nobody said that"
        keys = keys_of[event.task_id]
        if said(event) == "running":
            assert event.task_id not in running, "two leases at one time"
            running.add(event.task_id)
            held.update(keys)
            claims += 1
            assert all(held[key] <= SLOTS[key[0]] for key in keys), "more leases than slots"
        elif event.task_id in running:
            running.remove(event.task_id)
            held.subtract(keys)
        done[event.task_id] += event.kind == "done"
    assert claims == sum(given.values()), "a claim that nobody was told of, or the reverse"
    assert set(done.values()) == {1}, "ended other than once"
    assert not running
    assert await e.counts("status") == {"completed": TASKS}
    assert {gauge.used for gauge in await e.engine.gauges()} <= {0}
    assert sum(diary.refused for diary in diaries) > 0, "nobody was ever too late: no race"


async def test_many_workers_in_one_process(e: Scene) -> None:
    await prepare(e)
    diaries = await asyncio.gather(*[race(e.engine, f"w{n}", n) for n in range(8)])
    await judge(e, list(diaries))


async def run(url: str, name: str, seed: int) -> Diary:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        racer.__file__,
        url,
        name,
        str(seed),
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    told = json.loads(out)
    told["given"] = [tuple(pair) for pair in told["given"]]
    return Diary(**told)


@pytest.mark.parametrize("engine_name", [name for name in chosen() if name in SHARED])
async def test_many_processes(e: Scene, url: str) -> None:
    await prepare(e)
    diaries = await asyncio.gather(*[run(url, f"p{n}", n) for n in range(3)])
    await judge(e, list(diaries))
