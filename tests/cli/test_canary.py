"""A canary in payload, result, header, error and URL: it shows nowhere where it is secret.

Real processes: a server, a worker with everything logged, the command line, and a client.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import httpx2
import pytest

from outlast.core.seal import new_key

CANARY = "canary-8f3a61d2"

APP = """
import logging
from dataclasses import dataclass
from outlast import Context, Outlast, Permanent, Secret

logging.getLogger().setLevel(logging.DEBUG)
app = Outlast()
Headers = dict[str, str]

@dataclass
class Receipt:
    number: int
    token: Secret[str]

@app.task(max_attempts=1)
async def charge(ctx: Context, card: Secret[str], url: Secret[str], headers: Headers) -> Receipt:
    await ctx.progress(50, f"charging {card.reveal()}", url=url.reveal())
    await ctx.emit(f"charged {card.reveal()}")
    ctx.log.info("charging %s at %s", card.reveal(), url.reveal())
    return Receipt(1, Secret(f"receipt {card.reveal()}"))

@app.task(max_attempts=1)
async def decline(ctx: Context, card: Secret[str], url: Secret[str], headers: Headers) -> None:
    raise Permanent(f"401 for {url.reveal()}: {card.reveal()}", details={"sent": card.reveal()})

@app.task(max_attempts=1, isolate=True)
def apart(card: Secret[str], url: Secret[str], headers: Headers) -> None:
    raise ValueError(card.reveal())

card = {"type": "string", "maxLength": 40, "writeOnly": True}
app.external("remote", queue="remote", max_attempts=1,
             schema={"type": "object", "properties": {"card": card}})
"""

PAYLOAD = {
    "card": CANARY,
    "url": f"https://ada:{CANARY}@api.example/charge?token={CANARY}",
    "headers": {"Authorization": f"Bearer {CANARY}", "Accept": "shown"},
}
TYPES = ("charge", "decline", "apart")


def _visit(http: httpx2.Client, ids: dict[str, str]) -> list[str]:
    """Everything that a server shows, in the hope of finding it."""
    seen = []

    def look(method: str, path: str, **options: Any) -> httpx2.Response:
        reply = http.request(method, path, **options)
        seen.append(f"{method} {path}: {reply.headers} {reply.text}")
        return reply

    api = "/api/v1"
    for id in ids.values():
        for path in ("", "/why", "/stream"):
            look("GET", f"{api}/tasks/{id}{path}")
    for path in ("/tasks", "/queues/dlq", "/types", "/workers", "/limits", "/queues/status"):
        look("GET", f"{api}{path}")
    for path in ("/metrics", "/openapi.json", "/health"):
        look("GET", path)
    # Errors: a payload that does not fit, a wrong key, a cursor and a filter that are none.
    bad = {**PAYLOAD, "url": [CANARY]}
    assert look("POST", f"{api}/tasks", json={"type": "charge", "payload": bad}).status_code == 422
    long = {"card": CANARY * 9}
    assert look("POST", f"{api}/tasks", json={"type": "remote", "payload": long}).status_code == 422
    look("GET", f"{api}/tasks", headers={"authorization": f"Bearer {CANARY}"})
    look("GET", f"{api}/tasks", params={"cursor": "x", "token": "y"})
    # What the caller wrote into the address stays out of the log; the answer is the caller's own.
    http.get(f"{api}/tasks", params={"q": CANARY})
    http.get(f"{api}/events", params={"after": CANARY, "ticket": CANARY})
    with http.stream("GET", f"{api}/events", params={"after": _start(http, ids)}) as stream:
        for line in stream.iter_lines():
            seen.append(line)
            if "data" in line and ids["remote"] in line and "dead" in line:
                break
    return seen


def _start(http: httpx2.Client, ids: dict[str, str]) -> str:
    """The cursor of the first event of the first task."""
    with http.stream("GET", f"/api/v1/tasks/{ids['charge']}/stream") as stream:
        return next(line for line in stream.iter_lines() if line.startswith("id: "))[4:]


def _work_remotely(http: httpx2.Client) -> str:
    """A worker over HTTP gets what is secret, and leaks it."""
    ask = {"worker": "w", "queues": ["remote"], "types": ["remote"], "max": 1, "wait": 5}
    [item] = http.post("/api/v1/leases", json=ask).json()["items"]
    lease = f"/api/v1/leases/{item['lease']}"
    card: str = item["task"]["payload"]["card"]
    http.post(f"{lease}/progress", json={"percent": 5, "message": card}).raise_for_status()
    http.post(f"{lease}/emit", json={"chunk": {"said": card}}).raise_for_status()
    used = {"tokens": 1, "model": f"m/{card}"}
    http.post(f"{lease}/usage", json=used).raise_for_status()
    error = {"type": "Refused", "message": f"no {card}", "details": {"at": card}}
    http.post(f"{lease}/fail", json={"error": error}).raise_for_status()
    return card


@pytest.mark.parametrize("keys", [None, new_key()], ids=["readable", "encrypted"])
def test_a_canary_is_seen_by_handlers_only(outlast: Any, until: Any, keys: str | None) -> None:
    outlast.write_app(text=APP)
    if keys is not None:
        outlast.env["OUTLAST_ENCRYPTION_KEYS"] = keys
    with (
        outlast.running("serve", "--port", "0", "--log-level", "debug"),
        outlast.worker("--log-level", "debug"),
    ):
        until(lambda: "http://" in outlast.log("serve"), lambda: outlast.log("serve"))
        address = outlast.log("serve").partition("http://")[2].split()[0]
        with httpx2.Client(base_url=f"http://{address}", timeout=30) as http:
            payloads = {**dict.fromkeys(TYPES, PAYLOAD), "remote": {"card": CANARY}}
            ids = {type: _enqueued(http, type, payload) for type, payload in payloads.items()}
            assert _work_remotely(http) == CANARY  # who runs it must get it
            for id in ids.values():
                http.get(f"/api/v1/tasks/{id}", headers={"prefer": "wait=30"})
            tasks = {type: http.get(f"/api/v1/tasks/{id}").json() for type, id in ids.items()}
            seen = _visit(http, ids)
    assert {type: task["status"] for type, task in tasks.items()} == {
        "charge": "completed", **dict.fromkeys(("decline", "apart", "remote"), "dead")
    }  # fmt: skip
    assert tasks["charge"]["payload"] == {
        "card": "***",
        "url": "***",
        "headers": {"Authorization": "***", "Accept": "shown"},
    }
    assert tasks["charge"]["result"] == {"number": 1, "token": "***"}
    assert tasks["remote"]["error"]["message"] == "no ***"
    assert "***" in tasks["apart"]["error"]["message"]
    seen += [outlast.log("serve"), outlast.log("worker")]
    assert [text[:2_000] for text in seen if CANARY in text] == []
    stored = CANARY.encode() in _files(outlast.folder)
    assert stored is (keys is None)


def test_the_command_line_shows_nothing_of_it(outlast: Any) -> None:
    outlast.write_app(text=APP)
    outlast.env["OUTLAST_ENCRYPTION_KEYS"] = new_key()
    payload = json.dumps(PAYLOAD)
    with outlast.worker():
        done = outlast("enqueue", "charge", payload, "--wait")
        charged, declined = outlast.id_of("charge", payload), outlast.id_of("decline", payload)
        commands = (
            ("tasks", "watch", charged), ("tasks", "watch", declined), ("tasks", "show", charged),
            ("tasks", "show", declined, "--json"), ("tasks", "why", declined), ("tasks", "ls"),
            ("dlq", "groups"), ("enqueue", "charge", f'{{"card": ["{CANARY}"]}}'), ("doctor",),
        )  # fmt: skip
        ran = [done, *(outlast(*command) for command in commands)]
    assert "***" in ran[3].out
    seen = [text for one in ran for text in (one.out, one.err)] + [outlast.log("worker")]
    assert [text[:2_000] for text in seen if CANARY in text] == []


def _enqueued(http: httpx2.Client, type: str, payload: object) -> str:
    reply = http.post("/api/v1/tasks", json={"type": type, "payload": payload})
    id: str = reply.raise_for_status().json()["id"]
    return id


def _files(folder: Path) -> bytes:
    found = [Path(at) / name for at, _, names in os.walk(folder) for name in names]
    return b"".join(path.read_bytes() for path in found if ".db" in path.name)
