"""A handler: the name of a task type, what runs it, and how its tasks are made and enqueued.

Whatever can be worked out once is worked out at registration or in `options()`; a call only encodes
its arguments, looks into them where limits, search or fairness ask for it, and draws an id.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypeVar, Unpack, cast

from msgspec import Struct
from msgspec.structs import replace

from outlast.core.codec import Signature, check_size, dumps, loads
from outlast.core.errors import BadInput, suggest
from outlast.core.ids import new_id
from outlast.core.limits import Limit, LimitTemplate, resolve
from outlast.core.model import Json, NewTask
from outlast.core.redact import Hidden
from outlast.core.retry import Retry
from outlast.core.secret import secret_paths
from outlast.options import MAX_NAME, Options, check_together, fields_of
from outlast.schema import Schema, validate

if TYPE_CHECKING:
    from outlast.app import Outlast
    from outlast.handle import Handle

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
F_co = TypeVar("F_co", bound=Callable[..., object], covariant=True)

_OWNERS = ("user_id", "session_id")

Mode = Literal["async", "thread", "process", "command", "external"]
Payload = Mapping[str, object]
Gate = str | tuple[str, int] | Limit
"""A limit to hold: its key or template, with the units it takes, or a definition of its own."""
Gates = Sequence[str | tuple[str, int]] | Callable[[Payload], Sequence[Gate]]


class Call(Struct, Generic[R_co], frozen=True, gc=False):
    """A task that is ready to be enqueued, checked and with its id."""

    task: NewTask
    limits: tuple[Limit, ...] = ()
    """Definitions that its limits bring along."""
    within: object | None = None


class Handler(Generic[P, R]):
    """The handler of one task type.

    A worker reads `type`, `fn`, `signature`, `mode`, `retry`, `timeout_ms`, `memory_mb`, `command`,
    `max_attempts` and `queue`.
    """

    def __init__(
        self,
        app: Outlast,
        type: str,
        fn: Callable[..., Any],
        *,
        mode: Mode,
        retry: Retry,
        fields: Mapping[str, object],
        gates: Gates = (),
        search: Sequence[str] = (),
        memory_mb: int | None = None,
        command: tuple[str, ...] = (),
        schema: Schema | None = None,
    ) -> None:
        self.app = app
        self.type = type
        self.fn = fn
        self.signature = Signature.of(fn)
        self.mode: Mode = mode
        self.retry = retry
        self.memory_mb = memory_mb
        self.command = command
        self.search = tuple(search)
        self._schema = schema
        self._gates = gates
        self._templates = () if callable(gates) else tuple(map(_template, gates))
        self._fixed = tuple((t.text, n) for t, n in self._templates if len(t.parts) == 1)
        self._within: object | None = None
        self._chosen: dict[str, Any] = {}
        self.hidden = Hidden(secret_paths(self.schema), self.signature.returned_secrets)
        self._defaults = self._check_names()
        self._set({"queue": "default", **fields})

    def __repr__(self) -> str:
        return f"<Handler {self.type} ({self.mode})>"

    @property
    def schema(self) -> Schema:
        """The JSON Schema of its payload."""
        return self.signature.payload_schema() if self._schema is None else self._schema

    @property
    def queue(self) -> str:
        return str(self._told["queue"])

    @property
    def priority(self) -> int | None:
        """What the type or a call has chosen; None when neither did."""
        return self._told.get("priority")  # type: ignore[return-value]  # read by fields_of

    @property
    def timeout_ms(self) -> int | None:
        return self._told.get("timeout_ms")  # type: ignore[return-value]  # read by fields_of

    @property
    def max_attempts(self) -> int:
        return self._told.get("max_attempts", 4)  # type: ignore[return-value]  # likewise

    @property
    def chosen(self) -> Mapping[str, Any]:
        """What `options` was given."""
        return self._chosen

    def options(self, **options: Unpack[Options]) -> Handler[P, R]:
        """This handler with options for the tasks that are enqueued through it."""
        made = copy.copy(self)
        told = dict(options)
        made._within = told.pop("within", self._within)
        made._chosen = {**self._chosen, **options}
        made._set({**self._told, **fields_of(told)})
        return made

    def under(self, options: Mapping[str, Any]) -> Handler[P, R]:
        """This handler with the options of what it belongs to; those chosen for it before stay."""
        return self.options(**{**options, **self._chosen})

    def hiding(self, hidden: Hidden) -> Handler[P, R]:
        """This handler for work of others, which has its secrets at these places."""
        made = copy.copy(self)
        made.hidden = hidden
        made._set(made._told)
        return made

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """A call for a batch: `await app.enqueue([summarize.call(url) for url in urls])`."""
        return self.prepare(self.signature.bind(*args, **kwargs))

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Hand the call over; when this returns, it is as durable as the handle says."""
        [handle] = await self.app.enqueue([self.call(*args, **kwargs)])
        return handle

    def accept(self, payload: Payload | Json) -> Call[R]:
        """A call with arguments from outside, checked here."""
        what = f"payload of {self.type}"
        data = payload if isinstance(payload, bytes) else dumps(payload, what, reveal=True)
        check_size(data, what)
        self.signature.decode(data)
        return self.prepare(data)

    def prepare(self, data: Json, *, complete: bool = True) -> Call[R]:
        """A call with arguments that are JSON and have been checked. When some of them are still to
        come, they are not held against the schema of a type that others run."""
        self.app.check(self.type)
        limits: tuple[tuple[str, int], ...] = self._fixed
        attrs: tuple[tuple[str, str], ...] = ()
        fair_key: str | None = None
        definitions: tuple[Limit, ...] = ()
        if self._looks:
            payload: Payload = {**self._defaults, **loads(data)}
            if self._schema is not None and complete:
                validate(payload, self._schema)
            if callable(self._gates):
                limits, definitions = self._ask(self._gates(payload))
            elif len(self._fixed) < len(self._templates):
                limits = tuple((t.render(payload), n) for t, n in self._templates)
            if self.search:
                attrs = _attrs(payload, self.search)
            if self._fair_by is not None:
                owner = self._told.get(self._fair_by) if self._fair_by in _OWNERS else None
                fair_key = str(owner or text_at(payload, self._fair_by) or "")
        task = replace(
            self._pattern,
            id=self._pattern.id or new_id(),
            payload=data,
            limits=limits,
            attrs=attrs,
            fair_key=fair_key,
        )
        return Call(task, definitions, self._within)

    def _set(self, told: dict[str, object]) -> None:
        check_together(told)
        self._told = told
        # A copy with a few fields set costs a third of a task made from all of them.
        fixed = {"id": "", "type": self.type, "meta": self.hidden.to_meta()}
        self._pattern = NewTask(**{**fixed, **told})  # type: ignore[arg-type]
        queue = self.app.queues.get(self.queue)
        self._fair_by = queue.fair_by if queue else None
        if self._fair_by is not None and self.hidden.covers(self._fair_by):
            raise BadInput(_secret(self.type, self._fair_by, f"fair_by= of {self.queue!r}"))
        self._looks = bool(
            callable(self._gates)
            or len(self._fixed) < len(self._templates)
            or self.search
            or self._fair_by
            or self._schema is not None
        )

    def _ask(self, gates: Sequence[Gate]) -> tuple[tuple[tuple[str, int], ...], tuple[Limit, ...]]:
        """The limits that a function of the payload named, and those it defined."""
        definitions = tuple(gate for gate in gates if isinstance(gate, Limit))
        limits: dict[str, int] = {}
        for gate in gates:
            key, units = (gate.key, 1) if isinstance(gate, Limit) else _named(gate)
            if key.endswith(":*"):
                raise BadInput(f"{self.type}: {key!r} is a family; name one key of it.")
            if not isinstance(gate, Limit) and resolve(key, self.app.limits) is None:
                raise BadInput(_undefined(self.type, key, key))
            limits[key] = units
        return tuple(limits.items()), definitions

    def _check_names(self) -> dict[str, object]:
        """Refuse limits and searches that could never work; the JSON of the arguments' defaults."""
        for template, _ in self._templates:
            if resolve(template.family, self.app.limits) is None:
                raise BadInput(_undefined(self.type, template.text, template.family))
        schema = self.signature.payload_schema()
        known: dict[str, dict[str, object]] = schema["properties"]  # type: ignore[assignment]
        paths = {".".join(p) for t, _ in self._templates for p in t.parts if isinstance(p, tuple)}
        for path in sorted(paths | set(self.search)):
            if self.hidden.covers(path):
                raise BadInput(_secret(self.type, path, "limits= or search="))
            name = path.partition(".")[0]
            if name not in known and not schema["additionalProperties"]:
                raise BadInput(
                    f"{self.type}: {path!r} is named in limits= or search=, but the handler takes"
                    f" no {name!r}{suggest(name, known)}."
                )
        return {name: part["default"] for name, part in known.items() if "default" in part}


class Function(Handler[P, R], Generic[P, R, F_co]):
    """A function with `@app.task` on it. Called, it is the plain function."""

    @property
    def __call__(self) -> F_co:
        return cast(F_co, self.fn)


def _attrs(payload: Payload, search: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """What a task is to be found by. Longer values are cut: they are keys of an index."""
    found = ((path, text_at(payload, path)) for path in search)
    return tuple((path, text[:MAX_NAME]) for path, text in found if text is not None)


def text_at(payload: Payload, path: str) -> str | None:
    """The text, number or truth at a dotted path, as text; None when there is no such thing."""
    value: object = payload
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) else None


def _named(gate: str | tuple[str, int]) -> tuple[str, int]:
    key, units = (gate, 1) if isinstance(gate, str) else gate
    if not isinstance(units, int) or isinstance(units, bool) or units < 0:
        raise BadInput(f"limits: ({key!r}, {units!r}) needs a whole number of units, 0 or more.")
    return key, units


def _template(gate: str | tuple[str, int]) -> tuple[LimitTemplate, int]:
    key, units = _named(gate)
    return LimitTemplate.parse(key), units


def _secret(type: str, path: str, where: str) -> str:
    return (
        f"{type}: {path!r} is secret and cannot be named in {where}: that is stored readable. Name"
        " another field, such as an id."
    )


def _undefined(type: str, text: str, family: str) -> str:
    return (
        f"{type}: the limit {text!r} has no definition; add Limit({family!r}, slots=…) to"
        " Outlast(limits=[…])."
    )
