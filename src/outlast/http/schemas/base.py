"""What shapes are made of."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

Time = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
Id = Annotated[str, Meta(extra_json_schema={"format": "uuid"})]
Span = Annotated[float | str, Meta(description="seconds, or text such as '10m'")]
Json = Any
"""Whatever JSON can say."""
Object = dict[str, Any]
Name = Annotated[str, Meta(min_length=1, max_length=200)]
Priority = Annotated[int, Meta(ge=0, le=32767)] | Literal["critical", "high", "normal", "low"]


class Sent(Struct, forbid_unknown_fields=True):
    """What comes in: a field that nobody knows is refused, for it was meant to do something."""


class Problem(Struct, kw_only=True):
    """Why a request was refused (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    """Stable, for programs."""
    field: str = ""
    """The part of the request that is wrong, where there is one."""
