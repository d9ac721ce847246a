"""The shapes that OpenAPI tells: what goes in and what comes out of the routes.

They are descriptions, not parsers: requests are checked where the values are used (`app.prepare`,
`parse_query`, `ops`), so that Python, HTTP and the command line refuse with the same words.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from outlast.http.schemas.base import *
from outlast.http.schemas.fleet import *
from outlast.http.schemas.leases import *
from outlast.http.schemas.operating import *
from outlast.http.schemas.people import *
from outlast.http.schemas.tasks import *
from outlast.http.schemas.workflows import *

PREFIX: Final = "#/components/schemas/"

SHAPES: Final = (
    TaskEvents, Events, NewTicket, Login, LoggedIn,
    Problem, NewTask, NewSummary, Batch, Task, Enqueued, EnqueuedBatch, TaskPage, Why, Reason, Edit,
    Bulk, Matched, Requeued, Queues, Paused, WorkerPage, LimitSpec, Limit, LimitPage, TypePage,
    BulkEnqueued, DeadGroupPage, TaskMetrics, Health, Alive, NewKey, MadeKey, KeyPage, NewToken,
    Token, Ticket, NewWebhook, Webhook, MadeWebhook, WebhookPage, NoticePage, Ack, Acked,
    Preferences,
    UsagePage, BudgetSpec, Budget, BudgetPage, NewUsage,
    NewWorkflow, EnqueuedWorkflow, WorkflowItem, Workflow, WorkflowPage, CancelWorkflow,
    RetryWorkflow, NewSchedule, Schedule, SchedulePage, ApprovalPage, Answer,
    Rerun, Steps, NewClaim, Claimed, Kept, NewProgress, NewChunk, NewResult, NewFailure, Ended,
)  # fmt: skip


def components() -> dict[str, Any]:
    """The schemas that the routes refer to."""
    return msgspec.json.schema_components(SHAPES, ref_template=PREFIX + "{name}")[1]
