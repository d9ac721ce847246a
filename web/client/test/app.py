"""A server with a worker for the tests of the TypeScript client: prints its address, and stays."""

import asyncio

from outlast import Context, Outlast, Permanent
from outlast.http.serve import serve

app = Outlast("memory://")


@app.task
async def add(a: int, b: int = 0) -> int:
    return a + b


@app.task
async def tell(ctx: Context, chunks: int) -> str:
    for n in range(chunks):
        await ctx.emit(f"{n}\u2028")
        await ctx.progress(100 * n / chunks, f"chunk {n}")
    return f"{chunks} chunks"


@app.task
async def ask(ctx: Context) -> str:
    return str(await ctx.ask("Really?"))


@app.task
async def doomed() -> None:
    raise Permanent("it cannot be")


app.external("elsewhere", queue="far")

if __name__ == "__main__":
    asyncio.run(
        serve(
            app,
            port=0,
            embedded_worker=True,
            on_ready=lambda address: print(address, flush=True),  # noqa: T201  # for the tests
        )
    )
