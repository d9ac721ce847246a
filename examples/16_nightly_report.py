"""A report every night at three, in Berlin, also over the change of the clock; and what is next."""

import asyncio
from datetime import UTC, datetime

from outlast import Context, Outlast, schedules
from outlast.testing import testing

app = Outlast("sqlite:///reports.db")


@app.task(every="0 3 * * *", tz="Europe/Berlin")
async def report(ctx: Context) -> str:
    made = datetime.fromtimestamp(ctx.now / 1_000, UTC)
    return f"report of {made:%A}"


async def main() -> None:
    async with testing(app) as t:  # an engine in memory, in which time passes when told to
        await t.run()
        [listed] = await schedules.listed(app, ahead=3)
        print(listed.schedule.name, "is due", listed.schedule.timetable)
        for _ in range(3):
            await t.advance("1d")
            await t.run()
        last = await schedules.run_now(app, "report")
        await t.run()
        print(await last.result())


if __name__ == "__main__":
    asyncio.run(main())
