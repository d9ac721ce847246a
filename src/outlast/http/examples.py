"""Examples for the OpenAPI document: for each shape one value, as a real server takes or gives it.

They are one story: a text is summarised for a session, with a failed attempt on the way.
"""

from __future__ import annotations

from typing import Any, Final

ID: Final = "019e8d3a-5b1c-7c44-9f0e-3a1d2b4c5d6e"
OTHER: Final = "019e8d3a-6f02-7a10-8b3d-77c1e9a0b2f4"
FLOW: Final = "019e8d3a-5b1c-7c44-9f0e-3a1d2b4c5d00"
SESSION: Final = "chat-42"
LEASE: Final = "3AAb2SxTnVQ8"
CONTENT: Final = "gc_01890a5d-ac96-774b-bcce-b302099a8057"
WORKER: Final = "web-1-4211-a3f9"
FINGERPRINT: Final = "5d41402abc4b2a76"
CURSOR: Final = "0000019e8d3a5b1c-1"
T0, T1, T2, T3 = (f"2026-11-16T09:30:{s}Z" for s in ("00.000", "00.012", "07.310", "09.845"))

_PAYLOAD: Final = {"content": "A queue keeps work for later, and forgets nothing."}
_SPEC: Final = {
    "type": "summarize", "payload": _PAYLOAD, "priority": "high", "session_id": SESSION,
    "tags": ["nightly"],
}  # fmt: skip
_WAITING: Final = {
    "id": ID, "type": "summarize", "queue": "default", "lane": "primary", "priority": 1,
    "state": "pending", "status": "ready", "parked": None, "payload": _PAYLOAD, "result": None,
    "error": None, "attempts": [], "progress": None, "attempt": 0, "max_attempts": 4, "losses": 0,
    "max_losses": 3, "timeout": 120.0, "overdue_after": None, "overdue_at": None, "max_age": None,
    "run_at": T0, "retry_at": None, "created_at": T0, "started_at": None, "updated_at": T0,
    "completed_at": None, "worker": None, "lease_until": None, "limits": ["provider:openrouter"],
    "reason": None, "fingerprint": None, "session_id": SESSION, "user_id": "ada",
    "tags": ["nightly"], "parent_id": None, "workflow_id": None, "origin_id": None, "after": [],
    "unique_key": None,
    "version": 1,
}  # fmt: skip
_ERROR: Final = {"code": "rate_limited", "type": "RateLimited", "message": "429 from the model"}
_FAILED: Final = {
    "number": 1, "worker": WORKER, "lane": "primary", "started_at": T0, "ended_at": T1,
    "outcome": "failed", "error": _ERROR,
}  # fmt: skip
_SUCCEEDED: Final = {
    "number": 2, "worker": WORKER, "lane": "retry", "started_at": T2, "ended_at": T3,
    "outcome": "succeeded", "error": None,
}  # fmt: skip
_RUNNING: Final = {
    **_WAITING, "state": "running", "status": "running", "lane": "retry", "attempt": 1,
    "started_at": T2, "updated_at": T2, "worker": WORKER, "attempts": [_FAILED],
    "lease_until": "2026-11-16T09:30:17.310Z", "version": 3,
}  # fmt: skip
_TASK: Final = {
    **_RUNNING, "state": "completed", "status": "completed", "result": "A queue forgets nothing.",
    "error": {**_ERROR, "details": None, "traceback": None}, "attempts": [_FAILED, _SUCCEEDED],
    "completed_at": T3, "updated_at": T3, "worker": None, "lease_until": None, "version": 4,
    "progress": {"percent": 100.0, "message": "done", "elapsed_ms": 2500, "updated_at": T3,
                 "data": {}},
}  # fmt: skip
_USED: Final = {
    "reports": 1, "tokens": 1020, "input_tokens": 900, "output_tokens": 120, "cost": 0.0123,
    "more": {},
}  # fmt: skip
_BUDGET: Final = {"key": "user:*", "cost": "5.00/day", "tokens": None, "then": "refuse"}
_ENQUEUED: Final = {**_WAITING, "existing": False, "durability": "fsync"}
_STATES: Final = {
    "ready": 12, "scheduled": 3, "retrying": 1, "throttled": 0, "blocked": 0, "running": 4,
    "stalled": 0, "completed": 981, "cancelled": 2, "dead": 1,
}  # fmt: skip
_DEPTHS: Final = {"primary": 11, "retry": 1, "scheduled": 4, "dlq": 1}
_SHARE: Final = {"retry_ratio": 0.3, "pressure": "normal"}
_TRIP: Final = {"rate": 0.5, "volume": 10, "window": 60.0, "open": 60.0}
_WORKER: Final = {
    "id": WORKER, "host": "web-1", "pid": 4211, "version": "0.1.0", "queues": ["default"],
    "types": ["summarize"], "slots": 200, "running": 4, "alive": True, "started_at": T0,
    "seen_at": T3, "lease_until": "2026-11-16T09:30:19.845Z", "draining": False,
}  # fmt: skip
_LIMIT: Final = {"key": "provider:openrouter", "slots": 8, "rate": "60/min", "trip": _TRIP}
_KEY: Final = {
    "id": "k_7f3a", "name": "web", "role": "client", "queues": [], "types": ["summarize"],
    "read_only": False, "rate": "600/min",
    "quota": {"living": 1000, "tasks": 50000, "bytes": None, "streams": 50},
    "created_at": T0, "expires_at": None,
}  # fmt: skip
_WEBHOOK: Final = {
    "id": OTHER, "url": "https://example.org/hooks/outlast", "events": ["task.completed"],
    "filter": "type:summarize", "disabled": None, "created_at": T0,
}  # fmt: skip
_PREFERENCES: Final = {
    "types": ["task_completed", "task_failed"], "min_priority": "normal", "push": True,
}  # fmt: skip
_ITEM: Final[dict[str, Any]] = {
    "id": FLOW, "name": "ingest", "status": "running", "origin": None, "within": None,
    "percent": 50.0, "counts": {"completed": 1, "blocked": 1}, "result": None, "error": None,
    "reason": None, "priority": 2, "session_id": SESSION, "user_id": "ada", "tags": [],
    "created_at": T0, "started_at": None, "completed_at": None,
}  # fmt: skip
_NODE: Final[dict[str, Any]] = {
    "id": ID, "name": "page", "kind": "node", "type": "fetch", "status": "completed", "after": [],
    "needs": "success", "when": None, "undo": None, "error": None, "parent_id": None,
    "reason": None, "attempt": 1, "max_attempts": 4, "progress": None, "priority": 2,
    "started_at": T0, "completed_at": T1, "run_at": T0,
}  # fmt: skip
_SCHEDULE: Final = {
    "name": "nightly", "type": "summarize", "payload": _PAYLOAD, "every": "0 3 * * *", "at": None,
    "tz": "Europe/Berlin", "catch_up": "latest", "overlap": "skip", "jitter": 30.0,
    "options": {"priority": "low"}, "source": "people", "paused": False, "error": None,
    "last_task": ID, "last_at": "2026-11-16T02:00:00.000Z",
    "next": ["2026-11-17T02:00:00.000Z", "2026-11-18T02:00:00.000Z"],
}  # fmt: skip

_TOLD: Final[dict[str, Any]] = {
    "event": "state", "id": "184",
    "data": {"task_id": ID, "attempt": 1, "at": T0, "status": "running"},
}  # fmt: skip
EXAMPLES: Final[dict[str, Any]] = {
    "NewTask": _SPEC,
    "NewSummary": {**_PAYLOAD, "session_id": SESSION},
    "Batch": {"tasks": [_SPEC, {"type": "summarize", "payload": {"content": "Another text."}}]},
    "Task": _TASK,
    "Enqueued": _ENQUEUED,
    "EnqueuedBatch": {"items": [_ENQUEUED, {**_ENQUEUED, "id": OTHER}]},
    "TaskPage": {"items": [_TASK], "next": None},
    "Why": {
        "task_id": ID, "status": "retrying", "waits_for": "time",
        "text": "Attempt 1 of 4 failed; the next one is due in 7 s.",
        "action": f"Try now: POST /tasks/{ID}/retry", "until": T2, "estimate_seconds": 7.0,
        "holders": [], "ahead": None, "spent": None,
    },
    "TaskEvents": {"items": [_TOLD], "next": "184", "done": False},
    "Events": {
        "items": [{**_TOLD, "data": {
            "cursor": "184", "kind": "state", "type": "summarize", "queue": "default",
            "session_id": SESSION, "workflow_id": None, **_TOLD["data"],
        }}],
        "next": "184",
    },
    "Login": {"key": "olk_…"},
    "LoggedIn": {"role": "operator", "name": "ops", "read_only": False},
    "NewTicket": {"path": f"/api/v1/tasks/{ID}/stream"},
    "Reason": {"reason": "changed my mind"},
    "Edit": {"payload": {"content": "A shorter text."}},
    "Rerun": {"from_step": "ask", "steps": {"fetch": "the text of the page"}},
    "Steps": {
        "items": [
            {"name": "fetch", "kind": "step", "done": True, "late": False,
             "value": "the text of a page", "carried": False},
            {"name": ":wait:approved:1", "kind": "wait", "done": True, "late": False,
             "value": True, "carried": False},
        ],
        "signals": [{"name": "approved", "data": True, "at": "2026-11-16T09:30:00.000Z"}],
    },
    "Bulk": {"action": "retry", "filter": "status:dead type:summarize age>1h", "rate": "10/s"},
    "BulkEnqueued": {**_ENQUEUED, "type": "outlast.bulk", "matched": 118},
    "Matched": {"matched": 118, "dry_run": True},
    "Requeued": {"requeued": 2, "died": 0},
    "Queues": {
        "queues": _DEPTHS, "states": _STATES, **_SHARE,
        "by_queue": {"default": {
            **_DEPTHS, "states": _STATES, **_SHARE, "oldest_seconds": 4.2, "paused": False,
            "completed_per_minute": 37,
        }},
    },
    "Paused": {"queue": "default", "paused": True},
    "Worker": {**_WORKER, "draining": True},
    "WorkerPage": {"items": [_WORKER], "next": None},
    "LimitSpec": {"slots": 8, "rate": "60/min", "trip": {"rate": 0.5, "volume": 10}},
    "Limit": _LIMIT,
    "LimitPage": {
        "items": [{**_LIMIT, "source": "code"}],
        "gauges": [{
            "key": "provider:openrouter", "limit": _LIMIT, "used": 1, "waiting": 0,
            "circuit": "closed", "open_until": None, "paused_until": None, "probe": None,
            "holders": [ID],
        }],
        "next": None,
    },
    "UsagePage": {
        "by": "model", "from": "2026-10-18", "to": "2026-11-16",
        "items": [{"model": "gpt-small", **_USED}], "total": _USED, "next": None,
    },
    "BudgetSpec": {"cost": "5.00/day", "then": "refuse"},
    "Budget": {**_BUDGET, "source": "people"},
    "BudgetPage": {
        "items": [{
            **_BUDGET, "source": "code",
            "used": [{
                "key": "user:ada", "measure": "cost", "used": 0.0123, "amount": 5.0, "span": "day",
                "resets_at": "2026-11-17T00:00:00.000Z", "waiting": 0,
            }],
        }],
        "next": None,
    },
    "NewUsage": {"input_tokens": 900, "output_tokens": 120, "cost": "0.0123", "model": "gpt-small"},
    "TypePage": {
        "items": [{
            "type": "summarize", "mode": "async", "queue": "default",
            "description": "Shorten a text.",
            "schema": {"type": "object", "properties": {"content": {"type": "string"}},
                       "required": ["content"]},
            "result_schema": {"type": "string"}, "workers": 1,
        }],
        "next": None,
    },
    "DeadGroupPage": {
        "items": [{
            "fingerprint": FINGERPRINT, "type": "summarize", "count": 118,
            "error_type": "RateLimited", "message": "429 from the model", "reason": "failed",
            "example": ID, "last_at": T3,
        }],
        "next": None,
    },
    "Health": {
        "status": "healthy",
        "components": {
            "engine": {"status": "up", "durability": "fsync"},
            "workers": {"status": "up", "alive": 1},
            "circuit_breaker": {"status": "closed", "open": {}},
        },
        "timestamp": T0,
    },
    "TaskMetrics": {
        "items": [{
            "begin": "2026-11-16T00:00:00.000Z", "end": "2026-11-17T00:00:00.000Z",
            "type": "summarize", "queue": "default", "enqueued": 982, "completed": 981, "dead": 1,
            "cancelled": 0, "retried": 17, "failed": 17, "timed_out": 1, "error_rate": 0.018,
            "wait": {"average": 0.041, "p95": 0.09}, "run": {"average": 2.512, "p95": 4.875},
            "heartbeat_delay": 3.012,
        }],
        "next": None,
    },
    "Alive": {"status": "alive"},
    "NewKey": {
        "role": "client", "name": "web", "types": ["summarize"], "rate": "600/min",
        "quota": {"living": 1000, "tasks": 50000, "streams": 50},
    },
    "MadeKey": {**_KEY, "key": "olk_…"},
    "KeyPage": {"items": [_KEY], "next": None},
    "NewToken": {"user_id": "ada", "types": ["summarize"], "ttl": "1h"},
    "Token": {"token": "olt_…", "session_id": SESSION, "user_id": "ada"},
    "Ticket": {"ticket": "eyJwcmluY2lwYWwi…"},
    "NewWebhook": {"url": _WEBHOOK["url"], "events": ["task.completed"]},
    "Webhook": _WEBHOOK,
    "MadeWebhook": {**_WEBHOOK, "secret": "whsec_…"},
    "WebhookPage": {"items": [_WEBHOOK], "next": None},
    "NoticePage": {
        "items": [{
            "notification_id": OTHER, "type": "task_completed", "task_id": ID,
            "task_type": "summarize", "message": "summarize is done.", "action": "retrieve_result",
            "timestamp": T3, "priority": "normal",
        }],
        "more": False, "next": None,
    },
    "Ack": {"ids": [OTHER]},
    "Acked": {"acknowledged": [OTHER]},
    "Preferences": _PREFERENCES,
    "NewWorkflow": {
        "name": "ingest", "session_id": SESSION,
        "nodes": [
            {"name": "text", "type": "summarize", "payload": _PAYLOAD},
            {"name": "short", "type": "summarize", "payload": {"content": {"$from": "text"}}},
        ],
        "escalate": [{"failures": 3, "of": "summarize", "priority": "critical"},
                     {"age": "1h", "notify": "It takes its time.", "stop": True}],
    },
    "EnqueuedWorkflow": {
        **_ITEM, "percent": 0.0, "counts": {"ready": 1, "blocked": 1}, "existing": False,
        "durability": "fsync",
    },
    "WorkflowItem": _ITEM,
    "WorkflowPage": {"items": [_ITEM], "next": None},
    "Workflow": {
        **_ITEM,
        "nodes": [
            _NODE,
            {**_NODE, "id": OTHER, "name": "text", "type": "summarize", "status": "blocked",
             "after": [ID], "attempt": 0, "started_at": None, "completed_at": None,
             "when": {"id": ID, "path": ["size"], "test": ">", "value": 10}},
        ],
        "truncated": False, "undo": [],
    },
    "CancelWorkflow": {"reason": "changed my mind"},
    "RetryWorkflow": {"from": "text"},
    "NewSchedule": {
        "name": "nightly", "type": "summarize", "payload": _PAYLOAD, "every": "0 3 * * *",
        "tz": "Europe/Berlin", "overlap": "skip", "jitter": "30s",
        "options": {"priority": "low"},
    },
    "Schedule": _SCHEDULE,
    "SchedulePage": {"items": [_SCHEDULE], "next": None},
    "ApprovalPage": {
        "items": [{
            "task_id": ID, "type": "clean_up", "question": "Delete old?",
            "action": {"delete": "old"}, "signal": "answer:1", "deadline": T3, "asked_at": T1,
            "session_id": SESSION, "user_id": "ada", "workflow_id": None, "tags": [],
        }],
        "next": None,
    },
    "Answer": {"answer": "yes"},
    "NewClaim": {
        "worker": "ts-1", "queues": ["ts"], "types": ["shout"], "max": 5, "wait": 20,
        "token": "5f0c7b",
    },
    "Claimed": {
        "items": [{
            "lease": LEASE, "task": _RUNNING, "until": "2026-11-16T09:30:17.310Z",
            "deadline": None, "steps": {}, "signals": [],
        }],
    },
    "Kept": {"until": "2026-11-16T09:30:20.310Z", "cancel": None},
    "NewProgress": {"percent": 50, "message": "half way", "data": {"page": 3}},
    "NewChunk": {"chunk": "Once upon "},
    "NewResult": {"result": {"words": 5}},
    "NewFailure": {"error": {"type": "RateLimited", "status": 429}, "retry": "30s"},
    "Ended": {"task_id": ID, "outcome": "succeeded"},
}  # fmt: skip
"""By the name of the shape."""

ANY: Final = {"approved": True}
"""A body that may be any JSON."""

STREAM: Final = (
    f'event: state\nid: {CURSOR}\ndata: {{"status":"running","task_id":"{ID}","attempt":2,'
    f'"at":"{T2}"}}\n\n'
    f'event: chunk\nid: 0000019e8d3a5b1c-2\ndata: {{"chunk":"A queue ","task_id":"{ID}",'
    f'"attempt":2,"at":"{T2}"}}\n\n'
)
