"""What workers in any language say and hear."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from outlast.core.states import Verdict
from outlast.http.schemas.base import Id, Json, Name, Object, Sent, Span, Time
from outlast.http.schemas.tasks import Task


class NewClaim(Sent, kw_only=True):
    """What a worker asks for: queues, types or both. Without types, whatever is in its queues."""

    worker: Name
    queues: Annotated[list[Name], Meta(max_length=50)] = []
    types: Annotated[list[Name], Meta(max_length=200)] = []
    max: Annotated[int, Meta(ge=1, le=50)] = 1
    wait: Annotated[float, Meta(ge=0, le=60)] = 0
    """Seconds to wait for a task when there is none."""
    token: Name | None = None
    """A random text: the same again within an hour gives the same leases again."""


class SignalCome(Struct):
    """A signal that has come for a task."""

    name: str
    data: Json
    at: Time


class LeasedTask(Struct, kw_only=True):
    """A task to work on, and the right to do so."""

    lease: str
    """For the other calls; opaque."""
    task: Task
    until: Time
    """The lease is over then, unless there was a call with it."""
    deadline: Time | None
    """The attempt has timed out then."""
    steps: dict[str, Json]
    """What earlier attempts remembered."""
    signals: list[SignalCome]


class Claimed(Struct):
    """Tasks to work on; none when there was none in time."""

    items: list[LeasedTask]


class Kept(Struct):
    """Until when the lease holds now, and why the task is to stop, if it is."""

    until: Time
    cancel: str | None


class NewUsage(Sent, kw_only=True):
    """What the attempt has used since it last told. Without `tokens` they are those that went in
    and came out."""

    tokens: Annotated[int, Meta(ge=0)] | None = None
    cost: Annotated[float, Meta(ge=0)] | str | None = None
    """In your currency; as text it is exact to nine decimals."""
    model: str | None = None
    input_tokens: Annotated[int, Meta(ge=0)] | None = None
    output_tokens: Annotated[int, Meta(ge=0)] | None = None
    more: dict[str, float] | None = None
    """Whatever else is counted: pictures, seconds, searches."""


class NewProgress(Sent, kw_only=True):
    """How far an attempt is."""

    percent: Annotated[float, Meta(ge=0, le=100)]
    message: str = ""
    data: Object = {}
    usage: NewUsage | None = None


class NewChunk(Sent):
    """A piece of output."""

    chunk: Json


class NewResult(Sent):
    """What came out."""

    result: Json = None
    usage: NewUsage | None = None


class FailureReport(Struct, kw_only=True):
    """What went wrong; `status` (HTTP) or `code` tell whether another attempt may help."""

    type: str = "Error"
    message: str = ""
    code: str | None = None
    status: int | None = None
    retry_after: float | None = None
    details: Object | None = None
    traceback: str | None = None


class NewFailure(Sent, kw_only=True):
    """How an attempt failed. `retry`: false never, true by the schedule, or after how long; null
    leaves it to the policy of the type."""

    error: FailureReport | None = None
    retry: bool | Span | None = None
    usage: NewUsage | None = None


class Ended(Struct):
    """How the attempt was recorded."""

    task_id: Id
    outcome: Verdict
