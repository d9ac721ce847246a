"""Outlast: durable tasks for AI applications."""

from outlast.app import Outlast
from outlast.context import Again, Context, SyncContext
from outlast.core.budgets import Budget
from outlast.core.errors import (
    BadInput,
    BudgetSpent,
    Conflict,
    EngineDown,
    EngineFull,
    KeyMissing,
    LeaseLost,
    Mismatch,
    NotFound,
    OutlastError,
    Permanent,
    TaskCancelled,
    TaskDead,
    TooLarge,
    Transient,
    UnknownEngine,
    UnknownType,
    Unsupported,
    WaitTimeout,
)
from outlast.core.lanes import Lanes
from outlast.core.limits import Limit, Trip
from outlast.core.model import Task
from outlast.core.redact import REDACTED
from outlast.core.retry import Retry
from outlast.core.secret import Secret
from outlast.decorating import ClassHandler
from outlast.definitions import KEEP_A_WEEK, Keep, Queue
from outlast.escalation import Escalation, Spawn
from outlast.handle import Handle, TaskEvent
from outlast.handler import Call, Handler
from outlast.steps import SignalTimeout, StepsChanged

__version__ = "0.1.0"

__all__ = [
    "KEEP_A_WEEK",
    "REDACTED",
    "Again",
    "BadInput",
    "Budget",
    "BudgetSpent",
    "Call",
    "ClassHandler",
    "Conflict",
    "Context",
    "EngineDown",
    "EngineFull",
    "Escalation",
    "Handle",
    "Handler",
    "Keep",
    "KeyMissing",
    "Lanes",
    "LeaseLost",
    "Limit",
    "Mismatch",
    "NotFound",
    "Outlast",
    "OutlastError",
    "Permanent",
    "Queue",
    "Retry",
    "Secret",
    "SignalTimeout",
    "Spawn",
    "StepsChanged",
    "SyncContext",
    "Task",
    "TaskCancelled",
    "TaskDead",
    "TaskEvent",
    "TooLarge",
    "Transient",
    "Trip",
    "UnknownEngine",
    "UnknownType",
    "Unsupported",
    "WaitTimeout",
    "__version__",
]
