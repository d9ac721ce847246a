"""sweep: one call of a function, and its counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from outlast.core.model import Swept
from outlast.engines.postgres.db import encode
from outlast.engines.postgres.exchange import brief

SWEEP: Final = "select * from outlast.sweep($1, $2, $3, $4, $5)"
STALLED: Final = encode(
    {
        "code": "stalled",
        "type": "Stalled",
        "message": "The worker that ran this attempt was lost.",
        "details": None,
        "traceback": None,
    }
)


def arguments(budget: int, gone: Sequence[str], skew_ms: int) -> tuple[Any, ...]:
    return skew_ms, budget, list(dict.fromkeys(gone)), STALLED, brief(STALLED)


def swept(row: Any) -> Swept:
    return Swept(**{name: row[name] for name in Swept.__struct_fields__})
