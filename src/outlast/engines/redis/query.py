"""Task queries: the conditions on a record, and the sorted sets in which to look for candidates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from outlast.core.errors import BadInput
from outlast.core.model import QUERY_FIELDS, TaskQuery, Term
from outlast.core.states import STATUSES, Ms, status_of
from outlast.engines._payloads import at_path, path_of, spellings
from outlast.engines.redis.rows import Row

COLUMNS: Final = {
    "id", "type", "queue", "lane", "priority", "session_id", "user_id", "workflow_id", "parent_id",
    "unique_key", "worker", "fingerprint", "reason", "created_at", "completed_at", "state",
    "parked",
}  # fmt: skip
NUMBERS: Final = {"priority", "created_at", "completed_at"}
INDEXED: Final = {"session_id", "user_id", "workflow_id", "parent_id", "tag"}
RARE: Final = {"scheduled", "retrying", "throttled", "blocked", "cancelled", "dead"}
"""Statuses that have a sorted set of their own; the others are found soonest from the newest on."""
SORTED: Final = ("queue", "type")
COUNTED: Final = ("status", "queue", "lane", "type")
"""What lib.lua counts tasks by."""


class Candidate(msgspec.Struct):
    """A record and what else a condition may ask about it."""

    row: Row
    """With its body, where a condition needs it."""
    lease_until: Ms | None
    now: Ms

    @property
    def status(self) -> str:
        row = self.row
        return status_of(row.state, row.rest.parked, row.lane, self.lease_until, self.now)


Test = Callable[[Candidate], bool]


def needs_body(query: TaskQuery) -> bool:
    return any(term.field == "text" or term.field.startswith("payload.") for term in query.terms)


def tests(query: TaskQuery, ahead: dict[str, set[str]]) -> list[Test]:
    """One per term. `ahead` has the ids that are ahead of a task."""
    return [_negated(_test(t, ahead)) if t.negated else _test(t, ahead) for t in query.terms]


def sources(
    query: TaskQuery, workers: Sequence[str], sorts: Mapping[str, tuple[str, str]]
) -> list[list[str]]:
    """For each term that has indexes: the keys, without prefix, that hold all it can find.

    `sorts` are the keys of all tasks, by queue and type."""
    found = []
    for term in query.terms:
        if term.negated or term.op != "=":
            continue
        values = [str(value) for value in term.values]
        if term.field in INDEXED or term.field.startswith("attr."):
            found.append([f"by:{term.field}:{value}" for value in values])
        elif term.field in SORTED:
            place = SORTED.index(term.field)
            found.append([key for key, sort in sorts.items() if sort[place] in values])
        elif term.field == "worker":
            found.append([f"held:{value}" for value in values])
        elif term.field == "status" and RARE.issuperset(values):
            found.append([f"status:{value}" for value in values])
        elif term.field == "status" and {"running", "stalled"}.issuperset(values):
            found.append([f"held:{worker}" for worker in workers])
    return found


def ids_of(query: TaskQuery) -> list[str] | None:
    """The tasks that are asked for by id, if they are."""
    for term in query.terms:
        if term.field == "id" and term.op == "=" and not term.negated:
            return [str(value) for value in dict.fromkeys(term.values)]
    return None


def value_of(candidate: Candidate, column: str) -> Any:
    return candidate.status if column == "status" else _field(candidate.row, column)


def _field(row: Row, name: str) -> Any:
    return getattr(row if name in Row.__struct_fields__ else row.rest, name)


def check_columns(by: Sequence[str]) -> None:
    for column in by:
        if column not in COLUMNS and column != "status":
            raise BadInput(f"Cannot count by {column!r}", field="by")


def _negated(test: Test) -> Test:
    return lambda candidate: not test(candidate)


def _test(term: Term, ahead: dict[str, set[str]]) -> Test:
    field = term.field
    wanted = {str(value) for value in term.values}
    if field == "status":
        unknown = wanted - set(STATUSES)
        if unknown:
            known = ", ".join(STATUSES)
            raise BadInput(f"Unknown status {min(unknown)!r}; known are {known}", field="status")
        return lambda c: c.status in wanted
    if field == "tag":
        return lambda c: not wanted.isdisjoint(c.row.rest.tags)
    if field.startswith("attr."):
        name = field.removeprefix("attr.")
        return lambda c: any(n == name and v in wanted for n, v in c.row.rest.attrs)
    if field == "limit":
        return lambda c: any(key in wanted for key, _units in c.row.rest.limits)
    if field == "text":
        pieces = [text.encode("utf-8", "surrogatepass").lower() for text in spellings(wanted)]
        return lambda c: any(piece in _payload(c).lower() for piece in pieces)
    if field.startswith("payload."):
        names = path_of(field)
        return lambda c: at_path(_payload(c), names) in wanted
    if field == "ahead_of":
        found = set().union(*(ahead[value] for value in wanted))
        return lambda c: c.row.id in found
    if field not in QUERY_FIELDS or field not in COLUMNS:
        known = ", ".join(sorted(QUERY_FIELDS))
        raise BadInput(f"Unknown field {field!r} in a query; known are {known}", field=field)
    if term.op not in ("=", "<", ">"):
        raise BadInput(f"Unknown comparison {term.op!r} in a query", field=field)
    return _compare(term)


def _compare(term: Term) -> Test:
    kind: Callable[[Any], Any] = _number if term.field in NUMBERS else str
    values = {value for value in map(kind, term.values) if value is not None}

    def test(candidate: Candidate) -> bool:
        have = _field(candidate.row, term.field)
        if have is None:
            return False
        if term.op == "=":
            return have in values
        return any(have < v if term.op == "<" else have > v for v in values)

    return test


def _number(value: object) -> int | None:
    try:
        return int(str(value))
    except ValueError:
        return None


def _payload(candidate: Candidate) -> bytes:
    return (candidate.row.body or b"")[: candidate.row.cut]
