"""Time travel: a task that is over, run again from one of its steps as a new task.

What the task remembers is in the order in which it was stored. What was stored before the chosen
step comes along in the new task's `meta` (`origin.py`); that step and all behind it happens anew.
A wait comes along with what it had received, so one that comes later waits for a new signal. Undos
stay with the task that did the work: the new one undoes only what it does itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pprint import pformat
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from outlast.core.codec import dumps, loads
from outlast.core.errors import BadInput, Conflict, TooLarge, suggest
from outlast.core.model import Json, Memory, Step, Task, TaskId
from outlast.core.redact import Redactor, are_side_by_side, mask_of, restored
from outlast.core.seal import is_sealed, readable
from outlast.core.secret import MASK, Path
from outlast.core.states import FINAL
from outlast.dataflow import Flow, flow_of, with_flow
from outlast.handle import Handle
from outlast.origin import Origin, origin_of, with_origin
from outlast.steps import END, given, kept
from outlast.stream import fetch
from outlast.views import View, iso

if TYPE_CHECKING:
    from outlast.app import Outlast
    from outlast.handler import Call

MAX_CARRIED: Final = 8 * 1_048_576
"""What may come along from a task, in bytes: it travels with each lease of the new one."""
UNDO_KEY: Final = ":undo:"

Kind = Literal["step", "wait", "call", "sleep", "changed"]
_KINDS: Final[dict[str, Kind]] = {
    ":wait:": "wait",
    ":call:": "call",
    ":sleep:": "sleep",
    ":changed:": "changed",
}
_SAID: Final = (
    "queue", "priority", "max_attempts", "max_losses", "timeout_ms", "overdue_after_ms",
    "max_age_ms", "session_id", "user_id", "tags", "followed",
)  # fmt: skip

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode


class Part(Struct, frozen=True, kw_only=True):
    """A step, or something else that a task remembers, under the name that it is asked for by."""

    name: str
    kind: Kind
    stored: tuple[Step, ...]
    """What is stored of it: of a wait or a call, that it began, and how it ended."""
    places: tuple[int, ...] = ()
    """The place of each among all that is stored."""

    @property
    def done(self) -> bool:
        return self.kind not in ("wait", "call") or self.stored[-1].key.endswith(END)

    @property
    def value(self) -> Any:
        """What the handler gets when it comes to it; for a call, how the child ended."""
        if not self.done:
            return None
        told = _decode(given(self.stored[-1].value)[0])
        if self.kind != "wait" or is_sealed(self.stored[-1].value):
            return told
        return told and told["data"]

    @property
    def secret(self) -> tuple[Path, ...]:
        """Where the value has secrets."""
        return given(self.stored[-1].value)[1]

    @property
    def late(self) -> bool:
        """Did nothing come in time?"""
        return self.kind == "wait" and self.done and _decode(self.stored[-1].value) is None

    def given(self, value: object) -> Part:
        """The same with another value."""
        last = self.stored[-1]
        told = {"n": None, "data": value} if self.kind == "wait" else value
        data = kept(_encode(told), self.secret)
        return replace(self, stored=(*self.stored[:-1], Step(last.key, data)))


def parts_of(task: Task, memory: Memory) -> list[Part]:
    """What a task remembers, in order, with what came along from its origin."""
    origin = origin_of(task.meta)
    found: dict[str, dict[int, Step]] = {}
    for place, step in enumerate((*(origin.carried if origin else ()), *memory.steps)):
        if not step.key.startswith(UNDO_KEY):
            found.setdefault(_name(step.key), {})[place] = step
    return [
        Part(name=name, kind=_kind(name), stored=tuple(stored.values()), places=tuple(stored))
        for name, stored in found.items()
    ]


def _name(key: str) -> str:
    return key.removesuffix(END) if key.startswith((":wait:", ":call:")) else key


def _kind(name: str) -> Kind:
    return next((kind for start, kind in _KINDS.items() if name.startswith(start)), "step")


# Looking -----------------------------------------------------------------------------------------


async def steps(app: Outlast, task_id: TaskId, redactor: Redactor | None = None) -> View:
    """What a task remembers and the signals it was sent, as people may see it: as the app shows it,
    or another `redactor`."""
    task = await fetch(app.engine, task_id)
    memory = await app.engine.memory(task_id)
    redactor = redactor or app.redactor
    shown = _shower(redactor, task)
    origin = origin_of(task.meta)
    carried = {key for key, _ in origin.steps} if origin else set()
    return {
        "items": [
            {
                "name": part.name,
                "kind": part.kind,
                "done": part.done,
                "late": part.late,
                "value": _told(shown(part.value, part.secret), part.kind, redactor),
                "carried": part.stored[-1].key in carried,
            }
            for part in parts_of(task, memory)
        ],
        "signals": [
            {"name": signal.name, "data": shown(_decode(signal.data)), "at": iso(signal.at)}
            for signal in memory.inbox
        ],
    }


def _told(value: Any, kind: Kind, redactor: Redactor) -> Any:
    """Of a call that died there is the error, with what whoever sees it may see of errors."""
    if kind == "call" and not redactor.traces and value and value.get("error"):
        return {**value, "error": {**value["error"], "traceback": None}}
    return value


def _shower(redactor: Redactor, task: Task) -> Any:
    """Takes out what is secret by name, and the task's own secrets wherever they stand."""
    mask = mask_of(task.payload, task.meta, redactor.hidden(task))

    def shown(value: object, secret: Sequence[Path] = ()) -> Any:
        told = _decode(redactor.shown(_encode(value), secret))
        return told if mask is None else mask.value(told)

    return shown


# Running again -----------------------------------------------------------------------------------


async def rerun(
    app: Outlast,
    task_id: TaskId,
    *,
    from_step: str | None = None,
    payload: Mapping[str, object] | None = None,
    steps: Mapping[str, object] | None = None,
) -> Handle[Any]:
    """A new task of the same type that begins at `from_step`, with what the task remembered before
    it; without one, at the first line. `payload` replaces the arguments, `steps` results of steps
    before. `***` in either stands for what was there."""
    task = await fetch(app.engine, task_id)
    if task.type in app.builtins:
        raise Conflict(f"Cannot rerun task {task_id}: {task.type} is a type of Outlast's own.")
    if task.state not in FINAL:
        raise Conflict(
            f"Cannot rerun task {task_id}: it is {task.status}. Cancel it, or wait until it ends."
        )
    known = parts_of(task, await app.engine.memory(task_id))
    carried = _edited(app, task, _before(task, known, from_step), steps or {}, from_step)
    stored = tuple(step for part in carried for step in part.stored)
    if (size := sum(len(step.value) for step in stored)) > MAX_CARRIED:
        raise TooLarge(
            f"What comes before {from_step!r} has {size:,} bytes; the most is {MAX_CARRIED:,}."
            " Rerun from an earlier step, and have steps give references."
        )
    call = await _again(app, task, payload)
    meta = with_origin(call.task.meta, Origin.of(task.id, stored))
    [handle] = await app.enqueue([replace(call, task=replace(call.task, meta=meta))])
    return handle


def _before(task: Task, known: Sequence[Part], from_step: str | None) -> list[Part]:
    """What comes along: what was over before the step was stored."""
    if from_step is None:
        return []
    names = [part.name for part in known]
    if from_step in names:
        start = known[names.index(from_step)].places[0]
        # Not what was only begun by then, in another branch of a gather.
        known = [part for part in known if part.places[-1] < start]
    elif task.state == "completed" or suggest(from_step, names):
        # A step that did not come to its end is not stored: it is whatever name is not known.
        hint = suggest(from_step, names) or "."
        told = ", ".join(map(repr, names[:20])) or "none"
        raise BadInput(
            f"from_step={from_step[:60]!r}: the task has stored no such step{hint} It has {told}.",
            field="from_step",
        )
    ended = [part for part in known if part.done]
    for part in ended:
        readable(part.stored[-1].value, f"The step {part.name!r}")
    return [_detached(part) for part in ended]


def _detached(part: Part) -> Part:
    """A signal that was received is of the other task's inbox."""
    return part.given(part.value) if part.kind == "wait" and not part.late else part


def _edited(
    app: Outlast, task: Task, parts: Sequence[Part], edits: Mapping[str, object], start: str | None
) -> list[Part]:
    if edits and start is None:
        raise BadInput(
            "steps: without from_step the task begins at its first line, and no step is kept.",
            field="steps",
        )
    names = [part.name for part in parts]
    for name in edits.keys() - set(names):
        told = ", ".join(map(repr, names[:20])) or "none"
        raise BadInput(
            f"steps: {name[:60]!r} is no step before {start!r}. Those are: {told}.", field="steps"
        )
    shown = _shower(app.redactor, task)
    return [
        part.given(_kept(edits[part.name], shown(part.value, part.secret), part.value))
        if part.name in edits
        else part
        for part in parts
    ]


def _kept(new: Any, shown: Any, old: Any) -> Any:
    """What a person sent back: where it still says what was shown, what stood there stays."""
    if new == shown:
        return old
    if isinstance(new, dict) and isinstance(shown, dict):
        return {
            key: _kept(part, shown[key], old[key]) if key in shown else part
            for key, part in new.items()
        }
    if isinstance(new, list) and isinstance(shown, list) and are_side_by_side(new, shown):
        return [_kept(*each) for each in zip(new, shown, old, strict=True)]
    return new


async def _again(app: Outlast, task: Task, payload: Mapping[str, object] | None) -> Call[Any]:
    """The same task once more, of its own: not in a workflow, nor under a unique key."""
    handler = await app.known(task.type)
    flow = flow_of(task.meta) or Flow()
    data: Json = readable(task.payload, f"The payload of task {task.id}")
    if payload is not None:
        told = restored(payload, loads(data))
        data = dumps(told, f"payload of {task.type}", reveal=True)
    if payload is None or flow.refs:
        call: Call[Any] = handler.prepare(data, complete=not flow.refs)
    else:
        call = handler.accept(data)
    meta = with_flow(call.task.meta, Flow(refs=flow.refs)) if flow.refs else call.task.meta
    same: dict[str, Any] = {name: getattr(task, name) for name in _SAID}
    return replace(call, task=replace(call.task, meta=meta, **same))


# As a test ---------------------------------------------------------------------------------------

_TEST: Final = '''\
"""Replays {type} {id}, which is {status}, with what its steps gave and the signals it had.

What is secret was left out: it is *** here. What the task had not stored is run by its handler.
"""

import asyncio
import json

from outlast.testing import testing
from {module} import {name} as app

PAYLOAD = {payload}
STEPS = {steps}


def test_replay() -> None:
    asyncio.run(replay())


async def replay() -> None:
    async with testing(app) as t:
        task = await t.replay({type!r}, PAYLOAD, STEPS)
        assert task.status == {status!r}, task.error
        {check}
'''


def pytest_of(task: View, told: View, target: str) -> str:
    """The source of a test, from the record and the steps as people see them."""
    module, _, name = target.partition(":")
    items = cast(list[View], told["items"])
    status, result, error = task["status"], task["result"], cast(View, task["error"])
    if status == "completed":
        hidden = MASK in _encode(result).decode()
        check = f"assert json.loads(task.result or b'null') == {_literal(result, 8)}"
        check = "# What it gave is secret, at least in part." if hidden else check
    elif status == "dead" and error is None:
        raise Conflict(
            f"Cannot export task {task['id']}: it is dead ({task['reason']}), but no attempt at it"
            " has failed, so there is nothing to replay."
        )
    elif status == "dead":
        check = f"assert json.loads(task.error or b'{{}}')['code'] == {error['code']!r}"
    else:
        raise Conflict(f"Cannot export task {task['id']}: it is {status}, neither done nor dead.")
    return _TEST.format(
        type=task["type"],
        id=task["id"],
        status=status,
        module=module,
        name=name or "app",
        payload=_literal(task["payload"]),
        steps=_literal(dict(_exported(item) for item in items if item["done"])),
        check=check,
    )


def _exported(item: View) -> tuple[str, object]:
    """A step by name; what nothing came for in time is known by where it ends."""
    name = str(item["name"])
    if item["late"]:
        return name + END, None
    return name, 0 if item["kind"] == "sleep" else item["value"]  # over, whenever it is replayed


def _literal(value: object, indent: int = 0) -> str:
    """A JSON value as it stands in Python."""
    return pformat(value, width=100 - indent, sort_dicts=False).replace("\n", "\n" + " " * indent)


def carried(values: Mapping[str, Any]) -> Iterator[Step]:
    """Steps by name, as an export has them, in the form in which they are stored."""
    for name, value in values.items():
        kind = _kind(name)
        told = {"n": None, "data": value} if kind == "wait" and not name.endswith(END) else value
        whole = kind not in ("wait", "call") or name.endswith(END)
        yield Step(name if whole else name + END, kept(_encode(told), ()))
