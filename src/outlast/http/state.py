"""What the routes share: the app that is served, its open connections, and how answers are made."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import HTTPConnection
from starlette.responses import Response

from outlast.access import Principal
from outlast.app import Outlast
from outlast.core.errors import BadInput, NotFound
from outlast.core.ids import check_id
from outlast.core.model import Task, TaskId
from outlast.core.redact import Redactor
from outlast.http.live import Live
from outlast.views import View, task_view, to_json


def outlast_of(request: HTTPConnection) -> Outlast:
    app: Outlast = request.app.state.outlast
    return app


def live_of(request: HTTPConnection) -> Live:
    live: Live = request.app.state.live
    return live


def path_id(text: str, what: str = "task") -> TaskId:
    """A task id in a path; what is no id names no task."""
    try:
        return check_id(text)
    except BadInput as error:
        raise NotFound(f"There is no {what} {text[:60]!r}.") from error


def redactor_of(request: HTTPConnection) -> Redactor:
    """What shows documents to whoever asks; behind the door only."""
    principal: Principal = request.state.principal
    redactor = outlast_of(request).redactor
    return redactor.for_end_users() if principal.role == "session" else redactor


def shown(request: HTTPConnection, task: Task) -> View:
    """The record of a task, for whoever asks: what is secret is not in it."""
    return task_view(task, redactor_of(request))


def answer(view: View, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(to_json(view), status, headers, "application/json")
