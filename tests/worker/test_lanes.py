"""The lane rule as a worker keeps it: exact over any hundred claims in a row."""

from __future__ import annotations

import pytest

from outlast.app import Outlast
from outlast.core.ids import new_id
from outlast.core.model import NewTask
from outlast.worker import Worker

CONCURRENCY = 7


async def claims(retries: int, fresh: int, count: int, concurrency: int = CONCURRENCY) -> list[str]:
    """The lanes of the first claims of a worker, in order, while both lanes hold work."""
    app = Outlast("memory://")
    order: list[str] = []
    worker = Worker(app, concurrency=concurrency, queues={"default": None})

    async def note(lane: str) -> None:
        order.append(lane)
        if len(order) == count:
            worker.stop()

    @app.task(name="primary")
    async def primary() -> None:
        await note("primary")

    @app.task(name="retry")
    async def retry() -> None:
        await note("retry")

    async with app:
        lanes = ["retry"] * retries + ["primary"] * fresh
        tasks = [NewTask(id=new_id(), type=lane, lane=lane) for lane in lanes]  # type: ignore[arg-type]
        await app.engine.enqueue(tasks)
        await worker.run()
    return order[:count]


@pytest.mark.parametrize(
    ("waiting", "share"),
    [(400, 30), (1_500, 20), (5_500, 10)],
    ids=["normal", "warning", "critical"],
)
async def test_any_hundred_claims_in_a_row_hold_the_share(waiting: int, share: int) -> None:
    order = await claims(retries=waiting, fresh=600, count=500)
    settled = order[CONCURRENCY:]  # the first deal tells how many retries wait
    for start in range(len(settled) - 99):
        window = settled[start : start + 100]
        assert window.count("retry") == share, f"claims {start} to {start + 100}"


@pytest.mark.parametrize("concurrency", [1, 2, 7])
@pytest.mark.parametrize(("retries", "fresh"), [(0, 50), (50, 0), (3, 47)])
async def test_an_empty_lane_leaves_no_slot_idle(
    retries: int, fresh: int, concurrency: int
) -> None:
    order = await claims(retries=retries, fresh=fresh, count=50, concurrency=concurrency)
    assert (order.count("retry"), order.count("primary")) == (retries, fresh)
