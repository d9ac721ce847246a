"""One story, told by every engine in the same words: its event trace equals the stored one.

Names stand for ids, and moments are relative to the beginning, rounded to 10 s: real time passes
while the story is told. A change of the golden file is a change of the protocol;
OUTLAST_TEST_GOLDEN=write writes it anew.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from outlast.core.model import Cancel, Charge, NewEvent, Resolve, Step
from outlast.core.states import Ms

from .language import Scene, body

GOLDEN = Path(__file__).with_name("golden.txt")


async def story(e: Scene) -> None:
    """A day in the life: everything that an engine writes into its log happens once at least."""
    await e.limit("api", slots=1, trip={"volume": 2, "open": "60s"})
    await e.batch(
        e.new("fetch", session_id="s1", workflow_id="w1", limits="api"),
        e.new("parse", after="fetch", session_id="s1", workflow_id="w1"),
        e.new("store", after="parse", session_id="s1", workflow_id="w1"),
        e.new("report", after="store", needs="any", session_id="s1", workflow_id="w1"),
    )
    await e.add("quiet", followed=False, queue="other")
    await e.add("later", delay="10m", overdue_after="5m")
    await e.add("held", hold="go")
    await e.add("old", delay="1h", max_age="1h")

    # The first attempt streams, fails, and is tried again; the second succeeds.
    [fetch] = await e.claim(1)
    chunk = NewEvent(kind="chunk", data=body({"chunk": "Hel"}), task_id=fetch.id)
    await e.report(fetch, events=[chunk], progress={"percent": 30})
    await e.fail(fetch, "30s", charges=[Charge("api", ok=False)], error={"type": "Timeout"})
    await e.advance("30s")
    [fetch] = await e.claim(1)
    await e.report(fetch, steps=[Step("page", b'"text"')])
    await e.finish(fetch, {"ok": True}, charges=[Charge("api", ok=False)])

    # A worker is lost, its successor dies for good; whoever came after is cancelled, or goes on.
    assert await e.claims(1, "lost") == ["parse"]
    await e.sweep(gone=["lost"])
    await e.advance("30s")
    [parse] = await e.claim(1)
    await e.die(parse, error={"type": "Broken", "message": "no such page"})
    await e.redrive("parse")
    await e.cancel("parse", "changed my mind")
    await e.redrive("store", "2h")
    await e.change("store", Resolve(b"1"))
    [report] = await e.claim(1)
    await e.finish(report)

    # Signals, waiting, a release, a cancel that is obeyed, one that is not heard any more.
    await e.signal("held", "go", {"by": "ada"})
    [held] = await e.claim(1)
    await e.snooze(held, park="signal:more")
    await e.signal("held", "more")
    [held] = await e.claim(1)
    await e.release(held)
    [held] = await e.claim(1)
    await e.change("held", Cancel("enough"))
    await e.stop(held, "enough")
    [quiet] = await e.claim(1, queue="other")
    await e.fail(quiet)
    assert await e.claims(1, "dead", queue="other") == ["quiet"]
    await e.change("quiet", Cancel("too late"))
    await e.sweep(gone=["dead"])

    # Time passes: overdue, too old.
    await e.advance("20m")
    await e.sweep()
    [later] = await e.claim(1, "w2")
    await e.finish(later, spawn=[e.new("child", parent="later")])
    await e.advance("100m")
    await e.sweep()
    await e.say("notice", {"text": "good night"}, session_id="s1")


async def test_the_trace_is_the_golden_one(e: Scene) -> None:
    began = await e.now()
    await story(e)
    lines = [_line(e, event, began) for event in await e.events()]
    trace = "\n".join(lines) + "\n"
    if os.environ.get("OUTLAST_TEST_GOLDEN") == "write":
        GOLDEN.write_text(trace)
    assert trace == GOLDEN.read_text()


def _line(e: Scene, event: Any, began: Ms) -> str:
    data = _plain(json.loads(event.data), began)
    where = " ".join(x for x in (event.session_id, event.workflow_id) if x)
    what = f"{e.name(event.task_id):7} #{event.attempt} {event.kind:9}"
    told = json.dumps(data, sort_keys=True, ensure_ascii=False)
    return f"{_seconds(event.at, began):>5} {what} {told} {where}".rstrip()


def _plain(value: Any, began: Ms) -> Any:
    """Without what differs from run to run: absolute moments become seconds since the beginning."""
    if isinstance(value, dict):
        return {
            name: _seconds(item, began) if name.endswith("_at") else _plain(item, began)
            for name, item in value.items()
        }
    return value


def _seconds(at: Ms, began: Ms) -> str:
    return f"{(at - began + 5_000) // 10_000 * 10}s"
