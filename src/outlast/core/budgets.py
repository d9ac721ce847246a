"""Budgets: caps on what tasks may use, by type, queue, user, session or all together.

A budget is one limit per measure (`core.limits.Cap`) under a key of its own; tasks carry the keys
of the budgets that apply to them, and attempts charge them with what they report as used.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from outlast.core.errors import BadInput
from outlast.core.limits import MAX_KEY, SPANS, Cap, Limit, Span, resolve
from outlast.core.model import Charge, NewTask
from outlast.core.usage import BILLION, MEASURES, Measure, Usage, billionths_of

Then: TypeAlias = Literal["hold", "refuse"]

PREFIX: Final = "budget:"
SCOPES: Final = ("type", "queue", "user", "session")
GLOBAL: Final = "global"
MAX_AMOUNT: Final = 9_000_000  # in billionths it must stay below 2**53, as every count of a gauge

_AMOUNT: Final = re.compile(r"\s*([0-9][0-9_]*(?:\.[0-9]+)?)\s*(?:/\s*([a-z]+))?\s*")
_FIELD: Final = re.compile(r"\{[^{}]*\}")


@dataclass(frozen=True, slots=True, init=False)
class Budget:
    """What may be used: `Budget("user:*", cost="5.00/day")`, `Budget("global", tokens="9000000")`.

    `key` is `global`, or `type:`, `queue:`, `user:` or `session:` and a name; a star (or a field in
    braces, as in `user:{user}`) gives everybody their own. An amount is per hour, day or month of
    the calendar (UTC), or without a span for ever. When it is used up, tasks wait until the span
    turns or the budget is raised (`then="hold"`), or new ones are refused (`then="refuse"`).
    """

    key: str
    cost: str | None
    tokens: str | None
    then: Then
    caps: tuple[tuple[Measure, Cap], ...]

    def __init__(
        self,
        key: str,
        *,
        cost: str | None = None,
        tokens: str | None = None,
        then: Then = "hold",
    ) -> None:
        if then not in ("hold", "refuse"):
            raise BadInput(f"Budget({key!r}, then={then!r}): 'hold' or 'refuse'.", field="then")
        told: dict[Measure, str | None] = {"cost": cost, "tokens": tokens}
        caps = tuple((m, _cap(key, m, text)) for m, text in told.items() if text is not None)
        if not caps:
            raise BadInput(f"Budget({key!r}): give cost= or tokens=, as in cost='5.00/day'.")
        object.__setattr__(self, "key", _check_key(key))
        object.__setattr__(self, "cost", cost)
        object.__setattr__(self, "tokens", tokens)
        object.__setattr__(self, "then", then)
        object.__setattr__(self, "caps", caps)

    @property
    def limits(self) -> tuple[Limit, ...]:
        """What the engines know of it."""
        return tuple(Limit(limit_key(m, self.key), cap=cap) for m, cap in self.caps)

    def to_json(self) -> dict[str, object]:
        return {"key": self.key, "cost": self.cost, "tokens": self.tokens, "then": self.then}

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> Budget:
        """Read a record back, or what came over HTTP."""
        key, cost, tokens = (data.get(name) for name in ("key", "cost", "tokens"))
        then = data.get("then") or "hold"
        if not isinstance(key, str) or not all(isinstance(x, str | None) for x in (cost, tokens)):
            raise BadInput("A budget has a key, and cost or tokens as texts, as in '5.00/day'.")
        return cls(key, cost=cost, tokens=tokens, then=then)  # type: ignore[arg-type]  # checked


def scopes_of(task: NewTask) -> list[str]:
    """The names under which budgets can apply to a task."""
    found = [GLOBAL, f"type:{task.type}", f"queue:{task.queue}"]
    if task.user_id is not None:
        found.append(f"user:{task.user_id}")
    if task.session_id is not None:
        found.append(f"session:{task.session_id}")
    return found


def budgets_of(task: NewTask, budgets: Mapping[str, Budget]) -> list[tuple[str, Budget]]:
    """Those that apply to it: (scope, budget). The own one of a user comes before everybody's."""
    pairs = ((scope, resolve(scope, budgets)) for scope in scopes_of(task))
    return [(scope, budget) for scope, budget in pairs if budget is not None]


def limit_key(measure: Measure, scope: str) -> str:
    """The limit that stands for a budget; a name too long for a key is told apart by its hash."""
    key = f"{PREFIX}{measure}:{scope}"
    if len(key) <= MAX_KEY:
        return key
    kind, _, name = scope.partition(":")
    return f"{PREFIX}{measure}:{kind}:{hashlib.sha256(name.encode()).hexdigest()}"


def is_budget(limit: str) -> bool:
    return limit.startswith(PREFIX)


def charges_for(limits: tuple[tuple[str, int], ...], usage: Usage) -> tuple[Charge, ...]:
    """What an attempt owes the budgets that its task carries."""
    found = []
    for key, _ in limits:
        for measure in MEASURES:
            if key.startswith(f"{PREFIX}{measure}:") and (units := usage.units(measure)):
                found.append(Charge(key, units=units))
    return tuple(found)


def amount(measure: str, units: int) -> int | float:
    """Units of a gauge as people write them."""
    return units / BILLION if measure == "cost" else units


def _check_key(key: str) -> str:
    scope, colon, name = key.partition(":") if isinstance(key, str) else ("", "", "")
    name = _FIELD.sub("*", name)
    if not colon and key == GLOBAL:
        return key
    starred = "*" in name and name != "*" and not (name.endswith(":*") and name.count("*") == 1)
    if scope not in SCOPES or not name or starred or not name.isprintable() or len(name) > MAX_KEY:
        raise BadInput(
            f"Budget({key!r}): the key is global, or one of {', '.join(SCOPES)} with a name, as in"
            " type:summarize, user:ada, or user:* for every user.",
            field="key",
        )
    return f"{scope}:{name}"


def _cap(key: str, measure: Measure, text: str) -> Cap:
    found = _AMOUNT.fullmatch(text) if isinstance(text, str) else None
    span = "total" if found is None else found[2] or "total"
    if found is None or span not in SPANS:
        raise BadInput(
            f"Budget({key!r}, {measure}={text!r}): write an amount per hour, day or month, as in"
            " '5.00/day', or one for ever, as in '100'.",
            field=measure,
        )
    number = found[1].replace("_", "")
    where = f"Budget({key!r}, {measure}={text!r})"
    if measure == "cost":
        units = billionths_of(number, where, MAX_AMOUNT)
    else:
        units = int(number) if number.isdigit() else 0
    if not 0 < units < 2**53:
        raise BadInput(f"{where}: give more than 0 (of tokens whole ones).", field=measure)
    spans: dict[str, Span] = {name: name for name in SPANS}
    return Cap(units, spans[span])
