"""Links of the OpenAPI document: which answers hold what other calls ask for.

Programs follow them to walk the API by themselves: enqueue, look, cancel; claim, heartbeat, end.
"""

from __future__ import annotations

import re
from typing import Any, Final

GIVES: Final = (
    ("/api/v1/tasks", "202", {"task_id": "/id"}),
    ("/api/v1/tasks/summarize", "202", {"task_id": "/id"}),
    ("/api/v1/workflows", "202", {"workflow_id": "/id"}),
    ("/api/v1/schedules", "201", {"schedule": "/name"}),
    ("/api/v1/leases", "200", {"lease": "/items/0/lease"}),
    ("/api/v1/webhooks", "201", {"webhook_id": "/id"}),
    ("/api/v1/keys", "201", {"key_id": "/id"}),
)
"""Of the answer to a POST: parameters of paths, and where in its body they are."""

_PARAMETER: Final = re.compile(r"{(\w+)}")


def add_links(paths: dict[str, Any]) -> None:
    """From every answer that gives an id to the operations that take nothing else in their path."""
    for source, status, given in GIVES:
        parameters = {name: f"$response.body#{place}" for name, place in given.items()}
        links = paths[source]["post"]["responses"][status].setdefault("links", {})
        for path, operations in paths.items():
            if set(_PARAMETER.findall(path)) != parameters.keys():
                continue
            for method, operation in operations.items():
                links[f"{method} {path}"] = {
                    "operationId": operation["operationId"],
                    "parameters": parameters,
                }
