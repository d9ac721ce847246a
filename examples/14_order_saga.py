"""An order that fails at its last step: what was done before is undone, the latest first."""

import asyncio

from outlast import Outlast, Permanent, saga
from outlast.worker import Worker

app = Outlast("memory://")


@app.task
async def reserve(order: str) -> str:
    print("reserved", order)
    return order


@app.task
async def give_back(order: str) -> None:
    print("gave back", order)


@app.task
async def charge(order: str, cents: int) -> str:
    print("charged", cents)
    return f"receipt-{order}"


@app.task
async def refund(order: str, cents: int) -> None:
    print("refunded", cents)


@app.task
async def ship(receipt: str) -> str:
    raise Permanent("the warehouse burned down")


async def main() -> None:
    async with app:
        async with app.workflow("order") as flow:
            reserved = flow.add(reserve, "o-17", undo=give_back)
            paid = flow.add(charge, reserved.out, 4200, undo=refund)
            flow.add(ship, paid.out)
        await Worker(app).drain()
        view = await saga.view(app, flow.id)
        print(view.status, view.counts)


if __name__ == "__main__":
    asyncio.run(main())
