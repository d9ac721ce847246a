"""What code defines beside handlers: fair queues and retention, and how definitions are stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from outlast.core.codec import dumps
from outlast.core.durations import Duration, to_ms
from outlast.core.errors import BadInput
from outlast.core.model import Json, Put
from outlast.engine import Engine
from outlast.options import name_of


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue that is shared fairly: `fair_by` is a field of the payload, a dotted path,
    `user_id` or `session_id`, and whoever has few tasks waits for few."""

    name: str
    fair_by: str

    def __post_init__(self) -> None:
        name_of(self.name, "name")
        name_of(self.fair_by, "fair_by")


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """How long, how many and how much of the tasks in one final state stay; None is no bound."""

    age: Duration | None = None
    count: int | None = None
    bytes: int | None = None

    def to_json(self) -> dict[str, int]:
        age_ms = None if self.age is None else to_ms(self.age)
        rule = {"age_ms": age_ms, "count": self.count, "bytes": self.bytes}
        return {name: value for name, value in rule.items() if value is not None}


KEEP_A_WEEK: Final[Mapping[str, Duration]] = {"completed": "24h", "cancelled": "24h", "dead": "7d"}
"""A preset for `Outlast(keep=…)`: results for a day, dead tasks for a week."""


def check_keep(keep: Mapping[str, Duration | Keep]) -> dict[str, Keep]:
    states = ("completed", "cancelled", "dead", "log")
    for state in keep:
        if state not in states:
            raise BadInput(f"keep={{{state!r}: …}}: give {', '.join(states)}.", field="keep")
    rules = {k: v if isinstance(v, Keep) else Keep(age=v) for k, v in keep.items()}
    if "log" in rules and rules["log"].age is None:
        raise BadInput("keep={'log': …}: the log is kept by age; give a duration.", field="keep")
    return rules


async def publish(
    engine: Engine, kind: str, values: Mapping[str, Mapping[str, object]], *, exact: bool = False
) -> list[str]:
    """Write definitions given in code as records; the keys of those that were written.

    Code writes what is absent and what code wrote before; what people set at run time stays.
    With `exact`, what code wrote before and no longer says is deleted.
    """
    if not values and not exact:
        return []
    there = {record.key: record for record in await engine.get(kind)}
    puts = []
    for key, value in values.items():
        data = dumps({**value, "source": "code"}, kind)
        record = there.get(key)
        if record is None:
            puts.append(Put(kind=kind, key=key, value=data, expect=0))
        elif record.value != data and is_from_code(record.value):
            puts.append(Put(kind=kind, key=key, value=data, expect=record.version))
    if exact:
        for key in there.keys() - values.keys():
            if is_from_code(there[key].value):
                puts.append(Put(kind=kind, key=key, value=None, expect=there[key].version))
    if puts:
        await engine.put(puts)
    return [put.key for put in puts]


def is_from_code(value: Json) -> bool:
    """Was this definition written by a program, and not set by people?"""
    told = msgspec.json.decode(value)
    return isinstance(told, dict) and told.get("source") == "code"
