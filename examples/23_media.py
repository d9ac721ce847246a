"""Media: a picture that is drawn, kept and found again, though nobody watches."""

import asyncio
import tempfile
from pathlib import Path

from outlast import Outlast
from outlast.systems.media import Local, Providers, media_generation
from outlast.testing import testing

folder = Path(tempfile.mkdtemp(prefix="outlast-media-"))
app = Outlast("memory://", content=str(folder))
# Others: Midjourney("https://…", key), Leonardo("https://cloud.leonardo.ai", key), or your own.
providers = Providers(Local(concurrency=2))
generate = media_generation(app, providers)


async def main() -> None:
    async with testing(app) as t:
        params = {"count": 2, "width": 320, "height": 200}
        print(providers.get_preview_info("local", params=params))
        handle = await generate.enqueue(
            "local", "a harbour at dusk", params=params, workflow_run_id="run-1"
        )
        await t.run()
        media = await handle.result(timeout=0)
        print(media.urls)  # served at /api/v1/content/{id} by `outlast serve`


if __name__ == "__main__":
    asyncio.run(main())
    for file in sorted(folder.rglob("gc_*[!n]")):
        print(file.name, file.read_bytes()[:4], f"{file.stat().st_size:,} bytes")
