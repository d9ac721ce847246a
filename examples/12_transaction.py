"""One transaction: the order and the task that handles it are both stored, or neither is."""

import asyncio

import apsw

from outlast import Outlast
from outlast.worker import Worker

app = Outlast("sqlite:///shop.db")


@app.task
async def send_receipt(order_id: int) -> str:
    return f"receipt for order {order_id}"


async def main() -> None:
    async with app:
        async with app.engine.transaction() as connection:
            assert isinstance(connection, apsw.Connection)
            connection.execute("create table if not exists orders (id integer primary key, tea)")
            connection.execute("insert into orders (tea) values (3)")
            order_id = connection.last_insert_rowid()
            receipt = await send_receipt.options(within=connection).enqueue(order_id)

        try:
            async with app.engine.transaction() as connection:
                lost = await send_receipt.options(within=connection).enqueue(order_id)
                raise RuntimeError("the shop burnt down")
        except RuntimeError:
            print("rolled back:", lost.id)

        await Worker(app).drain()
        print(await receipt.result())


if __name__ == "__main__":
    asyncio.run(main())
