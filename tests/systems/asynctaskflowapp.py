"""AsyncTaskFlow as the processes under test import it: summaries, and tasks that make a storm.

`$STORM` says how many retries are a storm, as JSON: warning, critical, and when they come again.
"""

from __future__ import annotations

import json
import os

from outlast import Lanes, Outlast, Retry, Transient
from outlast.systems.asynctaskflow import summaries
from outlast.systems.llm import Model

_storm = json.loads(os.environ.get("STORM", "{}"))
app = Outlast(lanes=Lanes(**_storm.get("lanes", {})))
summarize = summaries(app, Model.from_env())


@app.task(max_attempts=50, retry=Retry(_storm.get("again", "5s")))
async def doomed(n: int) -> None:
    raise Transient(f"the service behind {n} is away", status=503)
