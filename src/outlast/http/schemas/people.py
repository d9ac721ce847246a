"""Who may come in, and what they are told: keys, tokens, logins, notifications."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from outlast import notices
from outlast.access import Quota
from outlast.http.schemas.base import Id, Name, Priority, Sent, Span, Time
from outlast.notices import Action, NoticeType


class NewKey(Sent, kw_only=True):
    """An API key to be made. Without queues and types it is for all of them."""

    role: Literal["admin", "operator", "client", "worker"]
    name: Annotated[str, Meta(max_length=200)] | None = None
    queues: list[Name] = []
    types: list[Name] = []
    read_only: bool = False
    rate: str | None = None
    """Requests in a time, as in `600/min`."""
    quota: Quota | None = None
    expires: Span | None = None


class Key(Struct, kw_only=True):
    """An API key, without the key."""

    id: str
    name: str
    role: Literal["admin", "operator", "client", "worker"]
    queues: list[str]
    types: list[str]
    read_only: bool
    rate: str | None
    quota: Quota | None
    created_at: Time
    expires_at: Time | None


class MadeKey(Key, kw_only=True):
    """A new API key: the only time that it is shown."""

    key: str


class KeyPage(Struct):
    """All API keys."""

    items: list[Key]
    next: str | None


class NewToken(Sent, kw_only=True):
    """For whom a session token is."""

    user_id: Name | None = None
    types: list[Name] = []
    priority: Priority | None = None
    """Of the tasks that the token enqueues, where their type names none."""
    ttl: Span = "12h"


class Token(Struct, kw_only=True):
    """A session token."""

    token: str
    session_id: str
    user_id: str | None


class Notice(Struct, kw_only=True):
    """One notification."""

    notification_id: Id
    type: NoticeType
    task_id: Id
    task_type: str
    message: str
    action: Action
    timestamp: Time
    priority: Literal["critical", "high", "normal", "low"]


class NoticePage(Struct):
    """Notifications that were not acknowledged; `more` when there are others behind them, at
    `next`."""

    items: list[Notice]
    more: bool
    next: str | None


class Ack(Sent):
    """Notifications that have arrived."""

    ids: Annotated[list[str], Meta(max_length=1000)]


class Acked(Struct):
    """Those that were acknowledged now, and not before."""

    acknowledged: list[str]


class Preferences(Sent, kw_only=True):
    """What a session wants to be told."""

    types: tuple[NoticeType, ...] = notices.Preferences().types
    min_priority: Literal["critical", "high", "normal", "low"] = "low"
    push: bool = True


class Login(Sent):
    """An API key, given once."""

    key: str


class LoggedIn(Struct):
    """Who it is."""

    role: Literal["admin", "operator", "client", "worker", "session"]
    name: str
    read_only: bool


class NewTicket(Sent):
    """For what a ticket is."""

    path: Annotated[str, Meta(max_length=400)]
    """The path of a stream or a socket, as in `/api/v1/events`."""


class Ticket(Struct):
    """Good for one connection, within half a minute: `…/ws?ticket=…`."""

    ticket: str
