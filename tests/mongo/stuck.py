"""A process that dies in the middle of a transaction: run with a URL, it never returns."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from outlast.core.ids import new_id
from outlast.core.model import NewTask
from outlast.engine import connect


async def main(url: str) -> None:
    engine = connect(url)
    await engine.open()
    async with engine.transaction() as session:
        await engine.enqueue([NewTask(id=new_id(), type="work")], within=session)
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
