"""What anybody would write first: a FastAPI route that inserts one row. The measure for ours."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import apsw
import asyncpg
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

URL = sys.argv[1]
WRITER = ThreadPoolExecutor(1)
TABLE = "create table if not exists jobs (id {}, type text not null, payload text not null)"


class Job(BaseModel):
    type: str
    payload: dict[str, Any] = {}


@asynccontextmanager
async def lifespan(api: FastAPI) -> AsyncIterator[None]:
    if URL.startswith("postgresql"):
        async with asyncpg.create_pool(URL, min_size=10, max_size=10) as pool:
            await pool.execute(TABLE.format("bigserial primary key"))
            api.state.pool = pool
            yield
        return
    connection = apsw.Connection(URL.removeprefix("sqlite:///"))
    connection.execute("pragma journal_mode=wal; pragma synchronous=full")
    connection.execute(TABLE.format("integer primary key"))
    api.state.connection = connection
    yield
    connection.close()


api = FastAPI(lifespan=lifespan)


@api.post("/jobs", status_code=202)
async def create(job: Job) -> dict[str, Any]:
    payload = json.dumps(job.payload)
    if hasattr(api.state, "pool"):
        insert = "insert into jobs (type, payload) values ($1, $2) returning id"
        id = await api.state.pool.fetchval(insert, job.type, payload)
    else:
        id = await asyncio.get_running_loop().run_in_executor(WRITER, insert_row, job.type, payload)
    return {"id": id, "type": job.type, "payload": job.payload}


def insert_row(type: str, payload: str) -> int:
    connection: apsw.Connection = api.state.connection
    connection.execute("insert into jobs (type, payload) values (?, ?)", (type, payload))
    return connection.last_insert_rowid()


if __name__ == "__main__":
    listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)  # noqa: T201
    uvicorn.Server(uvicorn.Config(api, log_level="warning")).run([listener])
