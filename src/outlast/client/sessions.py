"""The calls about sessions of end users: their tasks, notifications, preferences, tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Unpack

from outlast.client.tasks import PageFilters, listing
from outlast.client.wire import Call, path, shaped
from outlast.core.codec import dumps
from outlast.http.schemas import Acked, NoticePage, Preferences, TaskPage, Ticket, Token
from outlast.notices import NoticeType

Named = Literal["critical", "high", "normal", "low"]


def session_page(session_id: str, /, **filters: Unpack[PageFilters]) -> Call[TaskPage]:
    """One page of a session's tasks, newest first."""
    return listing(path("/sessions/{id}/tasks", id=session_id), filters)


def notifications(session_id: str, *, cursor: str | None = None) -> Call[NoticePage]:
    """What the session has not acknowledged, oldest first; from the beginning, or behind the
    `next` of another page."""
    where = path("/sessions/{id}/notifications", id=session_id)
    params = {} if cursor is None else {"cursor": cursor}
    return Call(method="GET", path=where, params=params, read=shaped(NoticePage), again=True)


def acknowledge(session_id: str, ids: Sequence[str]) -> Call[list[str]]:
    """Notifications have arrived; answers those that were not acknowledged before."""
    return Call(
        method="POST", path=path("/sessions/{id}/notifications/ack", id=session_id),
        read=lambda data: shaped(Acked)(data).acknowledged, body=dumps({"ids": list(ids)}, "ids"),
        again=True,
    )  # fmt: skip


def preferences(session_id: str) -> Call[Preferences]:
    """What the session wants to be told."""
    where = path("/sessions/{id}/preferences", id=session_id)
    return Call(method="GET", path=where, read=shaped(Preferences), again=True)


def set_preferences(
    session_id: str,
    *,
    types: Sequence[NoticeType] = ("task_completed", "task_failed", "task_overdue"),
    min_priority: Named = "low",
    push: bool = True,
) -> Call[Preferences]:
    """Set what the session wants to be told."""
    told = {"types": list(types), "min_priority": min_priority, "push": push}
    return Call(
        method="PUT", path=path("/sessions/{id}/preferences", id=session_id),
        read=shaped(Preferences), body=dumps(told, "preferences"), again=True,
    )  # fmt: skip


def token(
    session_id: str,
    *,
    user_id: str | None = None,
    types: Sequence[str] = (),
    priority: int | str | None = None,
    ttl: str | float = "12h",
) -> Call[Token]:
    """A token for an end user: it opens the tasks of this session only. `priority` is that of what
    it enqueues, where the type names none."""
    told = {"user_id": user_id, "types": list(types), "priority": priority, "ttl": ttl}
    return Call(
        method="POST", path=path("/sessions/{id}/token", id=session_id), read=shaped(Token),
        body=dumps(told, "token"), again=True,
    )  # fmt: skip


def ticket(session_id: str) -> Call[Ticket]:
    """A ticket for one socket of a browser, which cannot send a header with it."""
    where = path("/sessions/{id}/ticket", id=session_id)
    return Call(method="POST", path=where, read=shaped(Ticket), again=True)
