"""JSON in and out by annotation: what a handler's parameters accept, and what its result is.

msgspec does the work, prepared once per handler (well below 5 µs for a small payload). A parameter
whose annotation msgspec cannot decode or describe, or that asks for pydantic, goes to pydantic.
"""

import inspect
import json
import re
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from itertools import accumulate, repeat
from math import isfinite
from operator import sub
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Raw, Struct
from msgspec.inspect import CustomType, Field, Type, type_info

from outlast.core.errors import BadInput, TooLarge, suggest
from outlast.core.secret import MARKS, MASK, REVEALED, Secret, secret_paths

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError

MAX_BYTES: Final = 1_048_576
MAX_DEPTH: Final = 64
DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

_Json = dict[str, object]

# A string literal, closed or not: possessive and with an optional end, so that hostile input
# ('"' and a million times '\"') is read once and not once from every quote.
_TEXT: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_TO_SQUARE: Final = bytes.maketrans(b"{}", b"[]")
_NO_BRACKET: Final = bytes(set(range(256)) - set(b"[]{}"))
_BETWEEN: Final = 92  # "[" is 91 and "]" is 93: 92 - byte is +1 for a level down, -1 for one up

_AT: Final = re.compile(r"(.*?)(?: - at `(?:key in )?(.*)`)?", re.DOTALL)
_FIELD_ERROR: Final = re.compile(r"Object (missing required|contains unknown) field `(.*)`")
_finite: Final = json.JSONEncoder(allow_nan=False)


# Plain JSON --------------------------------------------------------------------------------------


def check_size(data: bytes, what: str) -> None:
    if len(data) > MAX_BYTES:
        raise TooLarge(
            f"The {what} has {len(data):,} bytes; the most is {MAX_BYTES:,}. Store it elsewhere "
            "and pass a reference (a URL, a key, a content id)."
        )


def dumps(value: object, what: str = "value", *, reveal: bool = False) -> bytes:
    """JSON of any value that has one; NaN, what is too large or too deep, and the rest: refused.

    A `Secret` is `***` in it, unless it is revealed, to be stored."""
    try:
        data = (_revealer if reveal else _encoder).encode(value)
    except RecursionError as error:
        raise BadInput(f"The {what} contains itself, or is nested too deep for JSON.") from error
    except (TypeError, ValueError) as error:
        where, culprit = _culprit(value)
        raise BadInput(
            f"{where}: {type(culprit).__name__} in the {what} has no JSON form ({error}). Pass "
            "text, numbers, lists, dicts, dataclasses or models, or a reference to the thing.",
            field=where,
        ) from error
    if b"null" in data:  # what msgspec writes for NaN and infinity, and for None
        _refuse_infinite(value, what)
    if len(data) > MAX_DEPTH:  # what is shorter is neither too deep nor too large
        _check_depth(data, what)
        check_size(data, what)
    return data


def loads(data: bytes, what: str = "JSON") -> Any:
    check_size(data, what)
    _check_depth(data, what)
    try:
        return _any_decoder.decode(data)
    except ValueError as error:  # msgspec's errors and those of UTF-8 are all ValueErrors
        raise _bad_input(error) from error


def _check_depth(data: bytes, what: str) -> None:
    # No deeper than there are opening brackets: two scans in C settle nearly every case.
    if data.count(b"[") + data.count(b"{") <= MAX_DEPTH:
        return
    brackets = _TEXT.sub(b"", data).translate(_TO_SQUARE, _NO_BRACKET)
    depth = max(accumulate(map(sub, repeat(_BETWEEN), brackets)), default=0)
    if depth > MAX_DEPTH:
        raise BadInput(
            f"The {what} is nested {depth} levels deep; the most is {MAX_DEPTH}. Flatten it, or "
            "pass it as text."
        )


def _refuse_infinite(value: object, what: str) -> None:
    plain = msgspec.to_builtins(value, enc_hook=_reveal_hook, str_keys=True)
    try:
        _finite.encode(plain)
    except ValueError:
        pass
    except RecursionError:
        return  # _check_depth, which comes next, explains this better
    else:
        return
    stack: list[tuple[str, object]] = [("$", plain)]
    while stack:
        where, item = stack.pop()
        if isinstance(item, float) and not isfinite(item):
            raise BadInput(
                f"{where}: {item} in the {what} has no JSON form; pass None or a number.",
                field=where,
            )
        stack.extend((where + step, child) for step, child in _children(item))


def _culprit(value: object) -> tuple[str, object]:
    """Path and value of what cannot be encoded: down to the innermost part that fails."""
    where = "$"
    for _ in range(MAX_DEPTH):
        for step, child in _children(value):
            try:
                _revealer.encode(child)
            except (TypeError, ValueError, RecursionError):
                where, value = where + step, child
                break
        else:
            break
    return where, value


def _children(value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, Mapping):
        yield from ((f".{key}", child) for key, child in value.items())
    elif isinstance(value, list | tuple | set | frozenset):
        yield from ((f"[{index}]", child) for index, child in enumerate(value))
    elif isinstance(value, Struct):
        yield from ((f".{name}", getattr(value, name)) for name in value.__struct_fields__)
    elif is_dataclass(value):
        yield from ((f".{f.name}", getattr(value, f.name, None)) for f in fields(value))


def _enc_hook(value: object) -> object:
    return _plain(value, None)


def _reveal_hook(value: object) -> object:
    return _plain(value, REVEALED)


def _plain(value: object, context: Mapping[str, object] | None) -> object:
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, Secret):
        return MASK if context is None else value.reveal()
    if dump := getattr(value, "model_dump", None):  # a pydantic model, without importing pydantic
        return dump(mode="json", by_alias=True, context=context)
    raise TypeError(f"{type(value).__name__} is not supported")


def _dec_hook(wanted: type[Any], value: object) -> object:
    if issubclass(wanted, Secret):
        try:
            return wanted(msgspec.convert(value, wanted.inner, dec_hook=_dec_hook))
        except ValueError:  # whose words may quote the value
            raise ValueError("not what this secret is to be") from None
    if not isinstance(value, str):
        raise TypeError(f"Expected `str`, got `{type(value).__name__}`")
    return wanted(value)  # a PurePath: `_Plan` lets no other custom type through


_encoder: Final = msgspec.json.Encoder(enc_hook=_enc_hook)
_revealer: Final = msgspec.json.Encoder(enc_hook=_reveal_hook)
_any_decoder: Final = msgspec.json.Decoder()


# One annotation ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Plan:
    """How one annotation is decoded: by msgspec, or kept raw for pydantic."""

    wanted: Any
    adapter: "TypeAdapter[object] | None" = None

    @classmethod
    def of(cls, annotation: Any, where: str) -> "_Plan":
        if annotation is object:
            return cls(Any)
        try:
            if not _asks_for_pydantic(annotation) and _is_native(type_info(annotation)):
                msgspec.json.Decoder(annotation, dec_hook=_dec_hook)
                _native_schema(annotation)
                return cls(annotation)
        except TypeError:
            pass  # such as `UUID | str`, which msgspec cannot tell apart and pydantic can
        from pydantic import PydanticUserError, TypeAdapter  # late: 0.1 s that few handlers need

        try:
            adapter: TypeAdapter[object] = TypeAdapter(annotation)
            adapter.json_schema()
        except PydanticUserError as error:
            raise BadInput(
                f"{where}: {annotation!r} has no JSON form. Use str, int, float, bool, list, dict, "
                "datetime, UUID, Decimal, Enum, bytes, Path, a dataclass, a msgspec Struct or a "
                "pydantic model."
            ) from error
        return cls(Raw, adapter)

    def dump(self, value: object, where: str) -> object:
        if self.adapter is None:
            return value
        try:
            return self.adapter.dump_python(
                value, mode="json", by_alias=True, warnings=False, context=REVEALED
            )
        except ValueError as error:
            raise BadInput(f"{where}: has no JSON form ({error}).", field=where) from error

    def schema(self) -> tuple[_Json, _Json]:
        """The schema and the definitions that it refers to."""
        if self.adapter is None:
            return _native_schema(self.wanted)
        schema: _Json = self.adapter.json_schema(ref_template="#/$defs/{model}")
        definitions = schema.pop("$defs", {})
        return schema, definitions  # type: ignore[return-value]  # pydantic's $defs is a dict


def _native_schema(annotation: Any) -> tuple[_Json, _Json]:
    (schema,), definitions = msgspec.json.schema_components(
        [annotation], schema_hook=_schema_hook, ref_template="#/$defs/{name}"
    )
    return schema, definitions


def _schema_hook(wanted: type) -> _Json:
    if issubclass(wanted, Secret):
        schema, definitions = _native_schema(wanted.inner)
        return {**({} if definitions else schema), **MARKS}
    return {"type": "string", "format": "path"}  # a PurePath, as in `_dec_hook`


def _asks_for_pydantic(annotation: Any) -> bool:
    """`Annotated[int, Field(gt=0)]`: msgspec would read past the condition."""
    if isinstance(annotation, type) and issubclass(annotation, Secret):
        annotation = annotation.inner
    metadata = getattr(annotation, "__metadata__", ())
    return any(
        type(item).__module__.partition(".")[0] in ("pydantic", "annotated_types")
        for item in metadata
    ) or any(_asks_for_pydantic(part) for part in get_args(annotation))


def _is_native(info: Type) -> bool:
    """Whether msgspec alone decodes it: no class in it is foreign or validated by pydantic."""
    stack: list[object] = [info]
    seen: set[int] = set()
    while stack:
        node = stack.pop()
        if isinstance(node, tuple):
            stack.extend(node)
        elif isinstance(node, Type | Field) and id(node) not in seen:
            seen.add(id(node))  # types may contain themselves
            cls = getattr(node, "cls", None)
            if hasattr(cls, "__pydantic_validator__"):
                return False
            if isinstance(node, CustomType):
                if issubclass(node.cls, Secret):
                    stack.append(type_info(node.cls.inner))
                elif not issubclass(node.cls, PurePath):
                    return False
            stack.extend(getattr(node, name) for name in node.__struct_fields__)
    return True


# A handler ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Parameter:
    name: str
    plan: _Plan
    default: object = inspect.Parameter.empty

    @property
    def required(self) -> bool:
        return self.default is inspect.Parameter.empty

    def struct_field(self) -> tuple[str, Any] | tuple[str, Any, object]:
        if self.required:
            return self.name, self.plan.wanted
        if isinstance(self.default, str | int | float | None):
            return self.name, self.plan.wanted, self.default
        # msgspec refuses or copies mutable defaults; a function call shares them, and so do we.
        return self.name, self.plan.wanted, msgspec.field(default_factory=lambda: self.default)


class Signature:
    """What one handler takes and gives: bind a call, encode it, decode it, describe it."""

    __slots__ = (
        "_adapted",
        "_by_position",
        "_decoder",
        "_doc",
        "_free",
        "_parameters",
        "_payload",
        "_position_only",
        "_required",
        "_result",
        "_result_decoder",
        "_returned",
        "name",
        "returned_secrets",
        "takes_context",
    )

    def __init__(self, fn: Callable[..., object], *, skip_context: bool = True) -> None:
        self.name: str = getattr(fn, "__name__", None) or type(fn).__name__
        self._doc = inspect.getdoc(fn) or ""
        self._payload, self._returned = f"payload of {self.name}", f"result of {self.name}"
        parameters = list(inspect.signature(fn).parameters.values())
        self.takes_context = skip_context and bool(parameters) and _is_context(parameters[0])
        if self.takes_context:
            del parameters[0]
        hints = _hints(fn, self.name, {p.name for p in parameters} | {"return"})
        self._free = any(p.kind is p.VAR_KEYWORD for p in parameters)
        self._parameters: dict[str, _Parameter] = {}
        for p in parameters:
            if p.kind is p.VAR_POSITIONAL:
                raise BadInput(
                    f"{self.name}(*{p.name}): a payload is an object with names; take a list "
                    f"instead, as in {p.name}: list[str]."
                )
            if p.kind is not p.VAR_KEYWORD:
                plan = _Plan.of(hints.get(p.name, Any), f"{self.name}({p.name})")
                self._parameters[p.name] = _Parameter(p.name, plan, p.default)
        self._by_position = tuple(
            p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        )
        self._position_only = tuple(p.name for p in parameters if p.kind is p.POSITIONAL_ONLY)
        self._required = {p.name for p in self._parameters.values() if p.required}
        self._adapted = {
            p.name: p.plan.adapter for p in self._parameters.values() if p.plan.adapter is not None
        }
        struct = msgspec.defstruct(
            self.name,
            [p.struct_field() for p in self._parameters.values()],
            forbid_unknown_fields=not self._free,
            kw_only=True,
        )
        self._decoder = msgspec.json.Decoder(struct, dec_hook=_dec_hook)
        self._result = _Plan.of(_without_again(hints.get("return", Any)), f"{self.name}() -> …")
        self._result_decoder = msgspec.json.Decoder(self._result.wanted, dec_hook=_dec_hook)
        is_any = self._result.wanted is Any
        self.returned_secrets = () if is_any else secret_paths(self.result_schema())

    @classmethod
    def of(cls, fn: Callable[..., object], *, skip_context: bool = True) -> "Signature":
        return cls(fn, skip_context=skip_context)

    # a call, on the side that enqueues

    @property
    def first(self) -> str | None:
        """The name of the first argument."""
        return self._by_position[0] if self._by_position else None

    def bind(self, /, *args: object, **kwargs: object) -> bytes:
        """The payload of a call; checked as the worker will check it, defaults left out."""
        data = self.encode(self.named(*args, **kwargs))
        if self._adapted:
            self.decode(data)
        else:
            self._read(data)
        return data

    def named(self, /, *args: object, **kwargs: object) -> dict[str, object]:
        """The arguments of a call by name, of which only the names are checked."""
        payload = kwargs
        if args:
            if len(args) > len(self._by_position):
                raise BadInput(
                    f"{self.name}() takes {len(self._by_position)} arguments by position, "
                    f"{len(args)} were given: {self._usage()}"
                )
            payload = dict(zip(self._by_position, args, strict=False))
            for name in payload.keys() & kwargs.keys():
                raise BadInput(f"{self.name}() got {name!r} twice: {self._usage()}", field=name)
            payload.update(kwargs)
        for name in kwargs:
            if name not in self._parameters and not self._free:
                raise BadInput(
                    f"{self.name}() has no argument {name!r}{suggest(name, self._parameters)}: "
                    f"{self._usage()}",
                    field=name,
                )
        if not self._required <= payload.keys():
            missing = sorted(self._required - payload.keys())
            raise BadInput(
                f"{self.name}() misses {', '.join(map(repr, missing))}: {self._usage()}",
                field=missing[0],
            )
        return payload

    def encode(self, payload: Mapping[str, object]) -> bytes:
        if self._adapted:
            payload = {
                name: self._parameters[name].plan.dump(value, f"$.{name}")
                if name in self._adapted
                else value
                for name, value in payload.items()
            }
        return dumps(payload, self._payload, reveal=True)

    # a call, on the side that runs

    def decode(self, data: bytes) -> dict[str, object]:
        """The typed arguments by name, defaults filled in."""
        _check_depth(data, self._payload)
        arguments = msgspec.structs.asdict(self._read(data))
        for name, adapter in self._adapted.items():
            raw = arguments[name]
            if isinstance(raw, Raw):  # else it is the default
                arguments[name] = _validate(adapter, raw, f"$.{name}")
        if self._free:
            arguments = {**_any_decoder.decode(data), **arguments}
        return arguments

    def _read(self, data: bytes) -> Struct:
        try:
            return self._decoder.decode(data)
        except ValueError as error:
            raise _bad_input(error, self._parameters) from error

    def call_args(self, data: bytes) -> tuple[tuple[object, ...], dict[str, object]]:
        """What to call the handler with, after the context."""
        arguments = self.decode(data)
        return tuple([arguments.pop(name) for name in self._position_only]), arguments

    # the result

    def encode_result(self, value: object, what: str | None = None) -> bytes:
        """JSON of a result that fits its annotation: what is stored can be read by everyone.
        Errors name the function, or `what` it was called for."""
        returned = self._returned if what is None else f"result of {what}"
        data = dumps(self._result.dump(value, "$"), returned, reveal=True)
        if self._result.wanted is not Any:
            try:
                self._read_result(data)
            except BadInput as error:
                raise BadInput(f"The {returned} does not fit its annotation: {error}") from error
        return data

    def decode_result(self, data: bytes) -> Any:
        _check_depth(data, self._returned)
        return self._read_result(data)

    def _read_result(self, data: bytes) -> Any:
        if self._result.adapter is not None:
            return _validate(self._result.adapter, data, "$")
        try:
            return self._result_decoder.decode(data)
        except ValueError as error:
            raise _bad_input(error) from error

    # in words

    def payload_schema(self) -> dict[str, object]:
        properties: _Json = {}
        definitions: _Json = {}
        for name, parameter in self._parameters.items():
            schema, more = parameter.plan.schema()
            definitions |= more
            properties[name] = schema | self._default(parameter) | self._described(name)
        out: _Json = {"$schema": DIALECT, "title": self.name}
        if summary := " ".join(self._doc.partition("\n\n")[0].split()):
            out["description"] = summary
        out |= {
            "type": "object",
            "properties": properties,
            "required": [name for name in self._parameters if name in self._required],
            "additionalProperties": self._free,
        }
        return out | ({"$defs": definitions} if definitions else {})

    def result_schema(self) -> dict[str, object]:
        schema, definitions = self._result.schema()
        return {"$schema": DIALECT, **schema} | ({"$defs": definitions} if definitions else {})

    def _default(self, parameter: _Parameter) -> _Json:
        if parameter.required or isinstance(parameter.default, Secret):
            return {}
        try:
            return {"default": loads(dumps(parameter.plan.dump(parameter.default, "$")))}
        except BadInput:
            return {}  # a default that has no JSON form is the handler's own business

    def _described(self, name: str) -> _Json:
        """`name: text` (Google style) or `:param name: text` in the docstring, its first line."""
        pattern = rf"^\s*(?::param )?{re.escape(name)}(?: \(.*?\))?: +(\S.*)$"
        found = re.search(pattern, self._doc, re.MULTILINE)
        return {"description": found[1]} if found else {}

    def _usage(self) -> str:
        shown = [n if n in self._required else f"{n}=…" for n in self._parameters]
        return f"it takes ({', '.join(shown + ['**fields'] * self._free)})"


def _is_context(parameter: inspect.Parameter) -> bool:
    # By name: core does not know the class, and it may be imported for type checkers only.
    annotation = parameter.annotation
    name = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    name = name.strip("'\"").partition("[")[0].split(".")[-1]
    return parameter.name == "ctx" or name in ("Context", "SyncContext")


def _hints(fn: Callable[..., object], name: str, wanted: set[str]) -> dict[str, Any]:
    while isinstance(fn, partial):
        fn = fn.func
    if not inspect.isroutine(fn):
        fn = fn.__call__  # type: ignore[operator]
    # Only what is needed: the context may be imported under TYPE_CHECKING.
    annotations = {k: v for k, v in fn.__annotations__.items() if k in wanted}
    scope = getattr(inspect.unwrap(fn), "__globals__", {})
    carrier = types.SimpleNamespace(__annotations__=annotations)
    try:
        return get_type_hints(carrier, globalns=scope, include_extras=True)
    except (NameError, TypeError, SyntaxError, AttributeError) as error:
        raise BadInput(
            f"{name}(): an annotation cannot be resolved ({error}). Import or define what it names "
            "at the top of the module, not under TYPE_CHECKING and not inside a function."
        ) from error


def _without_again(annotation: Any) -> Any:
    """`str | Again` gives a str; `Again` (by name, as `Context`) is not a result."""
    parts = get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else ()
    parts = parts or (annotation,)
    kept = tuple(part for part in parts if getattr(part, "__name__", "") != "Again")
    return Union[kept] if kept else type(None)  # noqa: UP007  # built at run time


def _validate(adapter: "TypeAdapter[object]", data: Raw | bytes, where: str) -> object:
    from pydantic import ValidationError

    try:
        return adapter.validate_json(bytes(data))
    except ValidationError as error:
        raise _bad_model(error, where) from None  # it quotes the values, which may be secret


def _bad_model(error: "ValidationError", where: str) -> BadInput:
    found = error.errors(include_url=False, include_context=False, include_input=False)
    lines = []
    for item in found[:3]:
        steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in item["loc"])
        lines.append(f"{where}{''.join(steps)}: {item['msg']}")
    more = f" (and {len(found) - 3} more)" if len(found) > 3 else ""
    return BadInput("; ".join(lines) + more, field=lines[0].partition(": ")[0])


def _bad_input(error: ValueError, known: Mapping[str, object] | None = None) -> BadInput:
    """msgspec's "Expected `int`, got `str` - at `$.words`" with the path first."""
    match = _AT.fullmatch(str(error))
    message, where = (match[1], match[2] or "$") if match else (str(error), "$")
    if field := _FIELD_ERROR.fullmatch(message):
        missing = field[1] == "missing required"
        hint = "" if missing or where != "$" else suggest(field[2], known or ())
        message, where = ("missing" if missing else f"unknown field{hint}"), f"{where}.{field[2]}"
    return BadInput(f"{where}: {message.replace('`', '')}", field=where)
