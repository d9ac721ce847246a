"""Joining the caller's transaction: asyncpg, psycopg, SQLAlchemy; sync or async, by duck typing.

None of these is imported: whoever hands over a connection has imported its module already.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, Final

import asyncpg

from outlast.core.errors import BadInput
from outlast.core.model import Receipt

CALL: Final = "select id::text, existing, digest, refused from outlast.enqueue_within"
_KINDS: Final = ("$1::bigint", "$2::jsonb", "$3::bytea[]", "$4::bytea[]", "$5::boolean")
_CLOSED: Final = (
    "within= takes a connection in an open transaction: `async with app.engine.transaction()`, "
    "or yours of asyncpg, psycopg or SQLAlchemy (connection or session)."
)


async def enqueue_within(within: Any, call: str, arguments: tuple[Any, ...]) -> list[Receipt]:
    """The receipts; BadInput leaves the transaction as it was."""
    rows = await _rows(within, call, arguments)
    if rows and rows[0][3] is not None:
        raise BadInput(rows[0][3], field="after")
    return [Receipt(row[0], row[1], row[2]) for row in rows]


async def _rows(within: Any, call: str, arguments: tuple[Any, ...]) -> Sequence[Any]:
    module = type(within).__module__.partition(".")[0]
    if module == "asyncpg":
        return await _asyncpg(within, call, arguments)
    if module == "sqlalchemy":
        return await _sqlalchemy(within, call, arguments)
    if module == "psycopg":
        return await _psycopg(within, call, arguments)
    raise BadInput(f"{_CLOSED} This is a {type(within).__qualname__}.", field="within")


async def _asyncpg(within: Any, call: str, arguments: tuple[Any, ...]) -> Sequence[Any]:
    try:
        usable = not within.is_closed() and within.is_in_transaction()
    except asyncpg.InterfaceError:  # went back to its pool
        usable = False
    if not usable:
        raise BadInput(_CLOSED, field="within")
    found: Sequence[Any] = await within.fetch(f"{call}({', '.join(_KINDS)})", *arguments)
    return found


async def _psycopg(within: Any, call: str, arguments: tuple[Any, ...]) -> Sequence[Any]:
    kinds = ", ".join("%s" + kind[2:] for kind in _KINDS)
    cursor = within.cursor()
    try:
        await _done(cursor.execute(f"{call}({kinds})", arguments))
        found: Sequence[Any] = await _done(cursor.fetchall())
    finally:
        await _done(cursor.close())
    return found


async def _sqlalchemy(within: Any, call: str, arguments: tuple[Any, ...]) -> Sequence[Any]:
    from sqlalchemy import text

    names = ("skew", "doc", "payloads", "metas", "plain")
    kinds = ", ".join(
        f"cast(:{name} as {kind[4:]})" for name, kind in zip(names, _KINDS, strict=True)
    )
    values = dict(zip(names, arguments, strict=True))
    result = await _done(within.execute(text(f"{call}({kinds})"), values))
    found: Sequence[Any] = result.fetchall()
    return found


async def _done(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value
