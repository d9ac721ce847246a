"""Usage: what attempts have used of a model (tokens, money, whatever is counted), and its sums.

Money is counted in billionths, as integers: a sum of many small amounts is exact, and a token that
costs a tenth of a millionth is not nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from outlast.core.codec import dumps
from outlast.core.errors import BadInput
from outlast.core.model import Json

Money: TypeAlias = float | str | Decimal
Measure: TypeAlias = Literal["cost", "tokens"]
MEASURES: Final[tuple[Measure, ...]] = ("cost", "tokens")

BILLION: Final = 1_000_000_000
MAX_COST: Final = 1_000_000
"""Of one report; beyond it a JSON number no longer has nine decimals."""
MAX_COUNT: Final = 10**12
MAX_MORE: Final = 16
MAX_MODEL: Final = 200
_NAME: Final = re.compile(r"[A-Za-z]\w{0,49}")
_TAKEN: Final = frozenset(
    {"tokens", "cost", "model", "input_tokens", "output_tokens", "user_id", "reports"}
)


class Usage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One report, as the data of a `usage` event."""

    tokens: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    model: str | None = None
    more: dict[str, float] = {}
    """Other things that were counted: pictures, seconds, searches."""
    user_id: str | None = None

    @property
    def billionths(self) -> int:
        return round(self.cost * BILLION)

    def units(self, measure: Measure) -> int:
        """What a budget is charged with."""
        return self.tokens if measure == "tokens" else self.billionths


class Sum(Struct, kw_only=True, omit_defaults=True):
    """Reports added up. It grows; whoever shows it makes a view of it."""

    reports: int = 0
    tokens: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    billionths: int = 0
    more: dict[str, float] = {}

    def add(self, other: Usage | Sum) -> None:
        self.reports += 1 if isinstance(other, Usage) else other.reports
        self.tokens += other.tokens
        self.input_tokens += other.input_tokens
        self.output_tokens += other.output_tokens
        self.billionths += other.billionths
        for name, value in other.more.items():
            self.more[name] = round(self.more.get(name, 0) + value, 9)

    def view(self) -> dict[str, object]:
        return {
            "reports": self.reports,
            "tokens": self.tokens,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cost": self.billionths / BILLION,
            "more": self.more,
        }


def usage_of(
    *,
    tokens: int | None = None,
    cost: Money | None = None,
    model: str | None = None,
    input_tokens: int | None = None,
    output_tokens: int | None = None,
    more: Mapping[str, float] | None = None,
) -> Json:
    """A report as JSON, checked. Without `tokens` they are those that went in and came out."""
    if model is not None and (not isinstance(model, str) or not 0 < len(model) <= MAX_MODEL):
        raise BadInput(f"usage(model=…): a name of 1 to {MAX_MODEL} characters.", field="model")
    if all(part is None for part in (tokens, cost, input_tokens, output_tokens, more or None)):
        raise BadInput("usage() tells of nothing: give tokens=, cost= or something counted.")
    went_in = _count("input_tokens", input_tokens or 0)
    came_out = _count("output_tokens", output_tokens or 0)
    usage = Usage(
        tokens=went_in + came_out if tokens is None else _count("tokens", tokens),
        input_tokens=went_in,
        output_tokens=came_out,
        cost=billionths_of(cost or 0, "usage(cost=…)", MAX_COST) / BILLION,
        model=model,
        more=_more(more or {}),
    )
    return dumps(usage, "usage")


def read_usage(data: Json) -> Usage:
    """A report from the log, or from a child process."""
    return msgspec.json.decode(data, type=Usage)


def billionths_of(amount: Money, where: str, most: int) -> int:
    try:
        exact = Decimal(str(amount)) if not isinstance(amount, bool) else Decimal("NaN")
    except InvalidOperation:
        exact = Decimal("NaN")
    if not exact.is_finite() or not 0 <= exact <= most:
        raise BadInput(f"{where}: an amount from 0 to {most:,}, not {str(amount)[:40]!r}.")
    return int((exact * BILLION).to_integral_value(ROUND_HALF_UP))


def _count(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_COUNT:
        raise BadInput(f"usage({name}={value!r}): a whole number, 0 or more.", field=name)
    return value


def _more(more: Mapping[str, float]) -> dict[str, float]:
    if len(more) > MAX_MORE:
        raise BadInput(f"usage(): at most {MAX_MORE} things of your own can be counted.")
    for name, value in more.items():
        fine = isinstance(value, int | float) and not isinstance(value, bool)
        if not _NAME.fullmatch(name) or name in _TAKEN or not fine or not 0 <= value <= MAX_COUNT:
            raise BadInput(
                f"usage({name[:60]}={str(value)[:40]}): a name of letters and digits, and a number"
                " of 0 or more.",
                field=name[:60],
            )
    return {name: round(value, 9) for name, value in more.items()}
