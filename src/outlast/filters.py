"""The filter language: one line that finds tasks, for the command line, HTTP and the dashboard.

    type:summarize status:dead,cancelled age>1h payload.user:ada tag:beta -queue:bulk "some text"

Every part must hold. Values apart by commas are alternatives, a minus in front means not, quotes
hold a value together. A word without a field looks into the payload. `age>1h` is older than an
hour, `ended<10m` ended within ten minutes; `created>2026-11-01` takes moments.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from outlast.core.durations import to_ms
from outlast.core.errors import BadInput, suggest
from outlast.core.model import MAX_PRIORITY, PRIORITIES, QUERY_FIELDS, Term
from outlast.core.states import STATUSES, Ms

MAX_LENGTH: Final = 2_000
MAX_TERMS: Final = 20

SHORT: Final = {
    "session": "session_id",
    "user": "user_id",
    "workflow": "workflow_id",
    "parent": "parent_id",
    "unique": "unique_key",
    "error": "fingerprint",
}
"""Names that are shorter than the fields they stand for."""
MOMENTS: Final = {"created": "created_at", "ended": "completed_at"}
SPANS: Final = {"age": "created_at", "ended": "completed_at"}
"""How long ago something was: an older task is one that was created earlier."""

_NAMES: Final = sorted({*QUERY_FIELDS, *SHORT, *MOMENTS, *SPANS} - {"text", *MOMENTS.values()})
_VALUE: Final = r'"(?:[^"\\]|\\.)*"|[^\s,"]+'
_PART: Final = re.compile(
    rf"""(?P<minus>-?)
        (?:(?P<field>[A-Za-z_][\w.-]*)(?P<op>[:=<>])(?P<values>(?:{_VALUE})(?:,(?:{_VALUE}))*)
        |(?P<text>"(?:[^"\\]|\\.)*"|(?![A-Za-z_][\w.-]*[:=<>])[^\s"]+))(?=\s|$)""",
    re.VERBOSE,
)


def parse_filter(text: str, now: Ms) -> tuple[Term, ...]:
    """The terms of a filter; `now` is the engine's clock."""
    if len(text) > MAX_LENGTH:
        raise BadInput(f"A filter has {MAX_LENGTH} characters at most.", field="q")
    terms: list[Term] = []
    place = 0
    while (place := _skip(text, place)) < len(text):
        found = _PART.match(text, place)
        if found is None:
            raise BadInput(
                f"The filter is not readable at {text[place : place + 30]!r}: write field:value,"
                ' age>1h, -field:value, or "words" that the payload has.',
                field="q",
            )
        terms.append(_term(found, now))
        place = found.end()
    if len(terms) > MAX_TERMS:
        raise BadInput(f"A filter has {MAX_TERMS} parts at most.", field="q")
    return tuple(terms)


def _skip(text: str, place: int) -> int:
    while place < len(text) and text[place].isspace():
        place += 1
    return place


def _term(found: re.Match[str], now: Ms) -> Term:
    negated = bool(found["minus"])
    if found["text"] is not None:
        return Term("text", (_plain(found["text"]),), negated=negated)
    name, op = found["field"], found["op"]
    values = tuple(_plain(value) for value in re.findall(_VALUE, found["values"]))
    if op in "<>":
        return _when(name, op, values, now, negated=negated)
    field = SHORT.get(name, name)
    known = field in QUERY_FIELDS and field not in MOMENTS.values()
    if name in SPANS or name in MOMENTS:
        told = ",".join(values)
        raise BadInput(f"{name}:{told} compares nothing: write {name}>{told}.", field="q")
    if not known and not field.startswith(("payload.", "attr.")):
        hint = suggest(name, _NAMES) or "."
        raise BadInput(
            f"There is no filter {name!r}{hint} Filters are: {', '.join(_NAMES)}, payload.<path>"
            " and attr.<name>.",
            field="q",
        )
    if field == "status":
        check_statuses(values)
    if field == "priority":
        return Term(field, tuple(_priority(value) for value in values), negated=negated)
    return Term(field, values, negated=negated)


def _when(name: str, op: str, values: tuple[str, ...], now: Ms, *, negated: bool) -> Term:
    if name not in SPANS and name not in MOMENTS:
        raise BadInput(
            f"{name}{op}: only age, created and ended can be compared, as in age>1h.", field="q"
        )
    if len(values) != 1:
        raise BadInput(f"{name}{op}: give one value.", field="q")
    [value] = values
    moment = _moment(value)
    if moment is not None and name in MOMENTS:
        return Term(MOMENTS[name], (moment,), ">" if op == ">" else "<", negated)
    if name not in SPANS:
        raise BadInput(f"{name}{op}{value}: give a moment, as in 2026-11-01.", field="q")
    return Term(SPANS[name], (now - to_ms(value),), "<" if op == ">" else ">", negated)


def check_statuses(values: tuple[str, ...]) -> None:
    for status in values:
        if status not in STATUSES:
            hint = suggest(status, STATUSES) or "."
            raise BadInput(
                f"There is no status {status!r}{hint} Statuses are: {', '.join(STATUSES)}.",
                field="status",
            )


def _moment(text: str) -> Ms | None:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    at = at.replace(tzinfo=UTC) if at.tzinfo is None else at
    return round(at.timestamp() * 1_000)


def _priority(text: str) -> int:
    if text in PRIORITIES:
        return PRIORITIES[text]
    if not text.isascii() or not text.isdigit() or len(text) > len(str(MAX_PRIORITY)):
        raise BadInput(
            f"priority:{text[:40]}: give {', '.join(PRIORITIES)} or a number, 0 to {MAX_PRIORITY}.",
            field="q",
        )
    return int(text)


def _plain(value: str) -> str:
    if not value.startswith('"'):
        return value
    return re.sub(r"\\(.)", r"\1", value[1:-1])
