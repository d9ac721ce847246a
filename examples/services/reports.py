"""A service on Redis Streams in Python: takes `report.*` tasks, and answers them.

STREAMS=redis://127.0.0.1:6379 python reports.py worker-1
"""

import json
import os
import sys
import time
import uuid
from contextlib import suppress
from datetime import UTC, datetime

import redis

CREATE, GROUP, ME = "agent:stream:task.create", "report-group", sys.argv[1]
IDLE_MS = int(os.environ.get("IDLE_MS", "30000"))  # a colleague that is silent for so long is dead
streams = redis.Redis.from_url(os.environ["STREAMS"], decode_responses=True)


def answer(kind, task, **told):
    told |= {"task_id": task["task_id"], "fence": task["fence"]}
    event = {"event_id": str(uuid.uuid4()), "event_type": f"task.{kind}", "data": json.dumps(told)}
    streams.xadd(f"agent:stream:task.{kind}", event | {"timestamp": datetime.now(UTC).isoformat()})


def work(entry, event):
    task = json.loads(event["data"])
    time.sleep(float(os.environ.get("WORK_S", "0")))  # stands for the work
    if task["task_type"].startswith("report."):
        if "quarter" in task["params"]:
            summary = f"Report for {task['params']['quarter']} {task['params']['year']}"
            answer("completed", task, status="success", result={"summary": summary})
        else:
            error = {"code": "INVALID_PARAMETERS", "message": "Which quarter?"}
            answer("failed", task, status="failed", error=error)
    streams.xack(CREATE, GROUP, entry)


with suppress(redis.ResponseError):  # a colleague was first
    streams.xgroup_create(CREATE, GROUP, id="0", mkstream=True)
while True:
    _, entries, *_ = streams.xautoclaim(CREATE, GROUP, ME, IDLE_MS, count=5)
    for _, new in streams.xreadgroup(GROUP, ME, {CREATE: ">"}, count=5, block=1000) or []:
        entries += new
    for entry, event in entries:
        work(entry, event)
