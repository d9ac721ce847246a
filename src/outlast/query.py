"""The query parameters of a list of tasks, as HTTP and the command line take them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from outlast.core.errors import BadInput, suggest
from outlast.core.model import TaskQuery, Term
from outlast.engine import Engine
from outlast.filters import check_statuses, parse_filter

FIELDS: Final = ("status", "type", "queue", "session_id", "user_id", "tag", "workflow_id")
MAX_LIMIT: Final = 500


async def parse_query(engine: Engine, params: Mapping[str, str | int | None]) -> TaskQuery:
    """`{"status": "dead,cancelled", "type": "summarize", "limit": 20}` as a query.

    Several values of one field stand apart by commas; `q` is a filter (`outlast.filters`).
    """
    terms: list[Term] = []
    limit, cursor = 50, None
    for name, value in params.items():
        if value is None or value == "":
            continue
        check_text(str(value), name)
        if name in FIELDS:
            values = tuple(dict.fromkeys(filter(None, map(str.strip, str(value).split(",")))))
            if name == "status":
                check_statuses(values)
            terms.append(Term(name, values))
        elif name == "q":
            terms += parse_filter(str(value), await engine.now())
        elif name == "limit":
            limit = _limit(value)
        elif name == "cursor":
            cursor = str(value)
        else:
            known = (*FIELDS, "q", "limit", "cursor")
            raise BadInput(
                f"There is no filter {name!r}{suggest(name, known) or '.'} Filters are:"
                f" {', '.join(known)}.",
                field=name,
            )
    return TaskQuery(terms=tuple(terms), limit=limit, cursor=cursor)


def check_text(text: str, field: str) -> None:
    """What no engine can have stored is not looked for: each would refuse it in its own way."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadInput(f"{field}: text in UTF-8 is needed.", field=field) from error
    if "\0" in text:
        raise BadInput(f"{field}: no task has a NUL character in it.", field=field)


def _limit(value: str | int) -> int:
    text = str(value)
    # Python refuses to read a number of thousands of digits.
    is_short = text.isascii() and text.isdigit() and len(text) < 10
    if not is_short or not 1 <= int(text) <= MAX_LIMIT:
        raise BadInput(f"limit={text[:20]}: give a number from 1 to {MAX_LIMIT}.", field="limit")
    return int(text)
