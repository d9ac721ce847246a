"""`Secret[...]`: a value that a handler can read and nothing else shows.

Where a payload has secrets is read from its JSON Schema (`writeOnly`, or `format: password`), so
that types of other languages have them too. A `Mask` takes the values of one task out of texts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, NoReturn, TypeVar
from urllib.parse import quote, quote_plus

import msgspec

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, SerializationInfo
    from pydantic_core import CoreSchema

    from outlast.core.failures import Failure

T_co = TypeVar("T_co", covariant=True)

MASK: Final = "***"
# Shorter ones would tear holes into every text, and are no secret for long.
LEAST: Final = 4
MARKS: Final[Mapping[str, object]] = {"writeOnly": True, "format": "password"}
REVEALED: Final[Mapping[str, object]] = {"outlast": "revealed"}
"""The context in which pydantic writes secrets as they are: for storing them."""

Path = tuple[str, ...]
"""Where something is in a JSON document: `*` is any one step, `**` any number of them."""


class Secret(Generic[T_co]):
    """A value that shows itself to nobody but `reveal()`: `def charge(card: Secret[str])`."""

    __slots__ = ("_value",)

    inner: ClassVar[Any] = Any
    """What the value is: `Secret[str]` is a subclass of its own, which msgspec and pydantic ask."""

    def __init__(self, value: T_co) -> None:
        self._value = value

    if not TYPE_CHECKING:

        def __class_getitem__(cls, inner: object) -> type:
            return _of(cls, inner)

    def reveal(self) -> T_co:
        return self._value

    def __repr__(self) -> str:
        return f"Secret({MASK!r})"

    def __str__(self) -> str:
        return MASK

    def __format__(self, spec: str) -> str:
        return format(MASK, spec)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and bool(self._value == other._value)

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __copy__(self) -> Secret[T_co]:
        return self

    def __deepcopy__(self, _memo: object) -> Secret[T_co]:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("A Secret is not pickled: pass on what reveal() gives, and only there.")

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        from pydantic_core import PydanticCustomError, ValidationError, core_schema

        def read(value: object, read_inner: Any) -> Secret[object]:
            if isinstance(value, Secret):
                return value
            try:
                return Secret(read_inner(value))
            except (ValidationError, ValueError, AssertionError):
                # pydantic's own words may quote the value.
                raise PydanticCustomError("secret", "not what this secret is to be") from None

        def write(value: Any, info: SerializationInfo[Any]) -> object:
            if info.context == REVEALED:
                return value.reveal() if isinstance(value, Secret) else value
            return MASK if info.mode == "json" else value

        return core_schema.no_info_wrap_validator_function(
            read,
            handler.generate_schema(cls.inner),
            serialization=core_schema.plain_serializer_function_ser_schema(write, info_arg=True),
        )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        inner: dict[str, Any] = handler(schema["schema"])
        return {**({} if "$ref" in inner else inner), **MARKS}


@lru_cache(maxsize=1_000)
def _of(cls: type[Secret[Any]], inner: object) -> type[Secret[Any]]:
    name = getattr(inner, "__name__", str(inner))
    return type(f"Secret[{name}]", (cls,), {"inner": inner, "__slots__": ()})


# Where secrets are -------------------------------------------------------------------------------


def secret_paths(schema: Mapping[str, object]) -> tuple[Path, ...]:
    """Where the documents of a JSON Schema hold secrets."""
    return tuple(sorted(_paths(schema, schema, ())))


def _paths(schema: object, root: Mapping[str, object], within: tuple[str, ...]) -> set[Path]:
    if not isinstance(schema, Mapping):
        return set()
    if schema.get("writeOnly") is True or schema.get("format") == "password":
        return {()}
    found: set[Path] = set()
    name = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    if name in within:
        return {("**",)}
    if name:
        definitions = root.get("$defs")
        target = definitions.get(name) if isinstance(definitions, Mapping) else None
        inner = _paths(target, root, (*within, name))
        again = {path for path in inner if path[-1:] == ("**",)}
        # It contains itself: its secrets are at any depth.
        found |= {("**", *path) for path in inner - again} if again else inner
    for many in ("anyOf", "oneOf", "allOf"):
        found |= _under((), schema.get(many), root, within)
    for step, parts in (
        ("*", [schema.get("items"), schema.get("additionalProperties")]),
        ("*", schema.get("prefixItems")),
    ):
        found |= _under((step,), parts, root, within)
    properties = schema.get("properties")
    for key, part in properties.items() if isinstance(properties, Mapping) else ():
        found |= _under((key,), [part], root, within)
    return found


def _under(
    step: Path, parts: object, root: Mapping[str, object], within: tuple[str, ...]
) -> set[Path]:
    found = parts if isinstance(parts, list) else []
    return {(*step, *path) for part in found for path in _paths(part, root, within)}


# Out of texts ------------------------------------------------------------------------------------


class Mask:
    """Takes the secrets of one task out of what its attempts say, where they stand verbatim."""

    __slots__ = ("_forms",)

    def __init__(self, values: Iterable[object]) -> None:
        forms = {form for value in values for form in _forms(value)}
        longest_first = sorted(forms, key=lambda form: (-len(form), form))
        self._forms = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")

    def text(self, text: str) -> str:
        return self._forms.sub(MASK, text)

    def value(self, value: object) -> object:
        """A JSON value that says the same without them."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(key): self.value(part) for key, part in value.items()}
        if isinstance(value, list):
            return [self.value(part) for part in value]
        if isinstance(value, int | float) and self._forms.fullmatch(str(value)):
            return MASK
        return value

    def data(self, data: bytes) -> bytes:
        return msgspec.json.encode(self.value(msgspec.json.decode(data)))

    def failure(self, failure: Failure) -> Failure:
        details, trace = failure.details, failure.traceback
        return msgspec.structs.replace(
            failure,
            message=self.text(failure.message),
            details=None if details is None else self.value(details),
            traceback=None if trace is None else self.text(trace),
        )


def _forms(value: object) -> set[str]:
    """How a value may stand in a text: as it is, in JSON, in a repr, in a URL."""
    if isinstance(value, Mapping):
        return {form for part in value.values() for form in _forms(part)}
    if isinstance(value, list | tuple):
        return {form for part in value for form in _forms(part)}
    if value is None or isinstance(value, bool):
        return set()
    text = str(value)
    forms = {text, repr(text)[1:-1], quote(text, safe=""), quote_plus(text)}
    for plain in tuple(forms):
        forms |= {json.dumps(plain)[1:-1], json.dumps(plain, ensure_ascii=False)[1:-1]}
    return {form for form in forms if len(form) >= LEAST}
