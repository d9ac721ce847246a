"""A typed client for Outlast servers: `Client` for synchronous code, `AsyncClient` for the rest."""

from outlast.client.aio import AsyncClient
from outlast.client.errors import (
    ApiError,
    Conflict,
    Forbidden,
    Full,
    Invalid,
    LeaseLost,
    Mismatch,
    NotFound,
    NotOutlast,
    TooLarge,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    UnknownType,
    Unreachable,
)
from outlast.client.sync import Client
from outlast.client.tasks import Filters, NewTask, PageFilters
from outlast.client.wire import Event

__all__ = [
    "ApiError",
    "AsyncClient",
    "Client",
    "Conflict",
    "Event",
    "Filters",
    "Forbidden",
    "Full",
    "Invalid",
    "LeaseLost",
    "Mismatch",
    "NewTask",
    "NotFound",
    "NotOutlast",
    "PageFilters",
    "TooLarge",
    "TooManyRequests",
    "Unauthorized",
    "Unavailable",
    "UnknownType",
    "Unreachable",
]
