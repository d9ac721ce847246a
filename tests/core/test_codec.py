"""Payloads and results: JSON by annotation, with errors that name the place."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
import pydantic
import pydantic.dataclasses
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.core.codec import MAX_BYTES, MAX_DEPTH, Signature, check_size, dumps, loads
from outlast.core.errors import BadInput, TooLarge


class Context:
    """Stands for outlast.Context, which core knows by name only."""


class Again:
    """Stands for outlast.Again."""


class Colour(Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    y: int = 0


@dataclass
class Tree:
    children: list["Tree"] = field(default_factory=list)


class Item(msgspec.Struct):
    name: str
    at: datetime | None = None


class User(pydantic.BaseModel):
    id: int
    email: str = pydantic.Field(default="", alias="eMail")
    score: float = 0.0


@pydantic.dataclasses.dataclass
class Positive:
    n: Annotated[int, pydantic.Field(gt=0)]


async def summarize(ctx: Context, url: str, user: str, words: int = 200) -> str:
    """Summarize a page,
    briefly.

    Args:
        url: where the page is
        words (int): how long
    """
    return f"{url}{user}{words}"


def message(call: Callable[[], object], error: type[Exception] = BadInput) -> str:
    with pytest.raises(error) as caught:
        call()
    return str(caught.value)


# Reading a signature


def test_the_context_is_known_by_its_class_or_as_ctx() -> None:
    def by_class(anything: Context, a: int) -> None: ...
    def by_text(anything: "outlast.Context", a: int) -> None: ...  # type: ignore[name-defined]  # noqa: F821
    def by_name(ctx, a: int) -> None: ...  # type: ignore[no-untyped-def]
    def second(a: int, ctx: int) -> None: ...

    for fn in (by_class, by_text, by_name):
        assert Signature.of(fn).takes_context
        assert loads(Signature.of(fn).bind(1)) == {"a": 1}
    assert not Signature.of(second).takes_context
    assert not Signature.of(by_name, skip_context=False).takes_context


def test_annotations_may_be_text() -> None:
    def handler(it: "Context", a: "int", p: "Point | None" = None) -> "list[Item]": ...  # type: ignore[empty-body]

    signature = Signature.of(handler)
    assert signature.decode(b'{"a": 1, "p": {"x": 1}}') == {"a": 1, "p": Point(1)}
    assert signature.decode_result(b'[{"name": "a"}]') == [Item("a")]


def test_methods_partials_and_callable_objects_are_handlers_too() -> None:
    class Handler:
        state: int = 0

        def method(self, a: int) -> int:
            return a

        def __call__(self, b: int) -> int:
            return b

    assert Signature.of(Handler().method).decode(b'{"a": 1}') == {"a": 1}
    assert Signature.of(Handler()).decode(b'{"b": 1}') == {"b": 1}
    assert message(lambda: Signature.of(Handler()).decode(b'{"b": "1"}'))
    bound = functools.partial(summarize, words=5)
    assert Signature.of(bound).decode(b'{"url": "u", "user": "a"}')["words"] == 5


def test_what_json_cannot_carry_is_refused_at_registration() -> None:
    def stars(*urls: str) -> None: ...
    def call(back: Callable[[], int]) -> None: ...
    def custom(it: Context, other: Context) -> None: ...
    def lost(a: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821
    def gives() -> Context: ...  # type: ignore[empty-body]

    assert "take a list" in message(lambda: Signature.of(stars))
    assert "call(back)" in message(lambda: Signature.of(call))
    assert "custom(other)" in message(lambda: Signature.of(custom))
    assert "'Nowhere' is not defined" in message(lambda: Signature.of(lost))
    assert "gives() ->" in message(lambda: Signature.of(gives))


# Binding a call


def test_a_call_becomes_an_object_by_parameter_name_without_defaults() -> None:
    signature = Signature.of(summarize)
    assert loads(signature.bind("u", user="ada")) == {"url": "u", "user": "ada"}
    assert loads(signature.bind("u", "ada", 5)) == {"url": "u", "user": "ada", "words": 5}


def test_a_wrong_call_is_explained() -> None:
    bind = Signature.of(summarize).bind
    assert message(lambda: bind("u", user="a", wrods=1)) == (
        "summarize() has no argument 'wrods'; did you mean 'words'?: it takes (url, user, words=…)"
    )
    assert "misses 'url', 'user'" in message(lambda: bind())
    assert "takes 3 arguments by position, 4" in message(lambda: bind(1, 2, 3, 4))
    assert "got 'url' twice" in message(lambda: bind("u", url="v", user="a"))
    assert message(lambda: bind("u", "a", "many")) == "$.words: Expected int, got str"
    with pytest.raises(BadInput) as caught:
        bind("u", "a", "many")
    assert caught.value.field == "$.words"


# Values there and back


def echo(value: Any) -> Any: ...


@pytest.mark.parametrize(
    ("annotation", "value", "text"),
    [
        (int, 2**70, b"1180591620717411303424"),
        (float, 1.5, b"1.5"),
        (datetime, datetime(2025, 1, 2, 3, tzinfo=UTC), b'"2025-01-02T03:00:00Z"'),
        (UUID, UUID(int=7), b'"00000000-0000-0000-0000-000000000007"'),
        (Decimal, Decimal("1.10"), b'"1.10"'),
        (Colour, Colour.RED, b'"red"'),
        (bytes, b"\x00\xff", b'"AP8="'),
        (Path, Path("/a/b"), b'"/a/b"'),
        (list[Path] | None, [Path("a")], b'["a"]'),
        (Path | int, Path("a"), b'"a"'),
        (Point, Point(1, 2), b'{"x":1,"y":2}'),
        (Tree, Tree([Tree()]), b'{"children":[{"children":[]}]}'),
        (list[Item], [Item("a")], b'[{"name":"a","at":null}]'),
        (UUID | int, UUID(int=7), b'"00000000-0000-0000-0000-000000000007"'),
        (User, User(id=1, eMail="e"), b'{"id":1,"eMail":"e","score":0.0}'),
        (dict[str, User | int], {"a": User(id=1), "b": 2}, None),
        (Literal["a", "b"], "b", b'"b"'),
        (object, {"any": [1, None]}, b'{"any":[1,null]}'),
        (set[int], {1}, b"[1]"),
        (None, None, b"null"),
    ],
)
def test_a_value_survives_as_argument_and_as_result(
    annotation: Any, value: object, text: bytes | None
) -> None:
    def handler(value: annotation, again: annotation = value) -> annotation: ...

    signature = Signature.of(handler)
    data = signature.bind(value)
    assert text is None or data == b'{"value":' + text + b"}"
    assert signature.decode(data) == {"value": value, "again": value}
    assert signature.decode_result(signature.encode_result(value)) == value


def test_defaults_are_the_function_s_own() -> None:
    shared, numbers, user = Point(1), [1], User(id=1)

    def handler(a: int = 1, b: Point = shared, c: list[int] = numbers, u: User = user) -> None: ...

    decoded = Signature.of(handler).decode(b"{}")
    assert decoded == {"a": 1, "b": Point(1), "c": [1], "u": User(id=1)}
    assert decoded["b"] is shared


def test_arguments_arrive_as_the_handler_takes_them() -> None:
    def handler(ctx: Context, a: int, /, b: int, *, c: int = 3) -> tuple[int, int, int]:
        return a, b, c

    signature = Signature.of(handler)
    args, kwargs = signature.call_args(b'{"b": 2, "a": 1}')
    assert (args, kwargs) == ((1,), {"b": 2, "c": 3})
    assert handler(Context(), *args, **kwargs) == (1, 2, 3)  # type: ignore[arg-type]


def test_keyword_arguments_make_a_free_payload() -> None:
    def handler(a: int, b: int = 2, **fields: object) -> None: ...

    signature = Signature.of(handler)
    assert loads(signature.bind(1, colour="red")) == {"a": 1, "colour": "red"}
    assert signature.decode(b'{"a": 1, "x": [2]}') == {"a": 1, "b": 2, "x": [2]}
    assert message(lambda: signature.decode(b'{"a": "1", "x": 2}')).startswith("$.a: ")
    assert signature.payload_schema()["additionalProperties"] is True


def test_a_missing_annotation_takes_anything() -> None:
    def handler(a, b=None):  # type: ignore[no-untyped-def]
        return a, b

    assert Signature.of(handler).decode(b'{"a": {"x": 1}}') == {"a": {"x": 1}, "b": None}


def test_again_is_not_a_result() -> None:
    def poll() -> str | Again: ...  # type: ignore[empty-body]
    def tick() -> Again: ...  # type: ignore[empty-body]

    assert Signature.of(poll).result_schema()["type"] == "string"
    assert Signature.of(tick).result_schema()["type"] == "null"


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b'{"p": {"x": 1}}', "$.u: missing"),
        (b'{"p": {"x": "1"}, "u": {"id": 1}}', "$.p.x: Expected int, got str"),
        (b'{"p": {"y": 1}, "u": {"id": 1}}', "$.p.x: missing"),
        (b'{"p": {"x": 1}, "u": {"id": "x"}}', "$.u.id: Input should be a valid integer"),
        (b'{"p": {"x": 1}, "u": [1]}', "$.u: Input should be"),
        (b'{"p": {"x": 1}, "u": {"id": 1}, "ns": [1, -1]}', "$.ns[1]: Input should be greater"),
        (b'{"p": {"x": 1}, "u": {"id": 1}, "path": 1}', "$.path: Expected str, got int"),
        (b'{"p": {"x": 1}, "u": {"id": 1}, "pth": 1}', "$.pth: unknown field; did you mean 'path'"),
        (b"[]", "$: Expected object, got array"),
        (b'{"p": ', "$: Input data was truncated"),
        (b'{"p": {"x": 1}, "u": {"id": "\xff"}}', "invalid"),
        (b"", "$: Input data was truncated"),
    ],
)
def test_a_wrong_payload_names_the_place(data: bytes, says: str) -> None:
    def handler(
        p: Point,
        u: User,
        ns: list[Annotated[int, pydantic.Field(gt=0)]] | None = None,
        path: Path = Path(),
    ) -> None: ...

    assert says in message(lambda: Signature.of(handler).decode(data))


def test_a_pydantic_dataclass_is_validated_by_pydantic() -> None:
    def handler(ps: list[Positive]) -> None: ...

    signature = Signature.of(handler)
    assert signature.decode(signature.encode({"ps": [Positive(1)]})) == {"ps": [Positive(1)]}
    assert "$.ps[0].n: " in message(lambda: signature.decode(b'{"ps": [{"n": 0}]}'))


def test_a_wrong_result_names_the_place() -> None:
    def native() -> list[int]: ...  # type: ignore[empty-body]
    def model() -> User: ...  # type: ignore[empty-body]

    assert message(lambda: Signature.of(native).decode_result(b'[1, "a"]')) == (
        "$[1]: Expected int, got str"
    )
    assert "$.id: " in message(lambda: Signature.of(model).decode_result(b"{}"))


@pytest.mark.parametrize(
    ("value", "where"),
    [
        (float("nan"), "$.value: nan"),
        ({"a": [1, float("-inf")]}, "$.value.a[1]: -inf"),
        ([None, Item("a"), Point(1, float("inf"))], "$.value[2].y: inf"),  # type: ignore[arg-type]
        (User(id=1, score=float("nan")), "$.value.score: nan"),
        ({"a": (1, object())}, "$.value.a[1]: object"),
        ({"a": Point(1j)}, "$.value.a.x: complex"),  # type: ignore[arg-type]
        ({"a": {None: 1}}, "$.value.a: dict"),
        (["ok", "\ud800"], "$.value[1]: str"),
        (Context, "$.value: type"),
    ],
)
def test_what_has_no_json_form_is_refused_by_path(value: object, where: str) -> None:
    assert message(lambda: Signature.of(echo).bind(value)).startswith(where)


def test_a_model_s_nan_is_refused_too() -> None:
    def handler(u: User) -> User: ...  # type: ignore[empty-body]

    bad = User(id=1, score=float("nan"))
    assert message(lambda: Signature.of(handler).encode({"u": bad})).startswith("$.u.score: nan")
    assert message(lambda: Signature.of(handler).encode_result(bad)).startswith("$.score: nan")


# Bounds


def test_size_is_bounded_with_advice() -> None:
    big = "x" * MAX_BYTES
    check_size(b"x" * MAX_BYTES, "step")
    assert message(lambda: check_size(b"x" * (MAX_BYTES + 1), "step"), TooLarge) == (
        "The step has 1,048,577 bytes; the most is 1,048,576. Store it elsewhere and pass a "
        "reference (a URL, a key, a content id)."
    )
    assert "payload of echo" in message(lambda: Signature.of(echo).bind(big), TooLarge)
    assert "result of echo" in message(lambda: Signature.of(echo).encode_result(big), TooLarge)
    assert "The JSON has" in message(lambda: loads(dumps_unbounded(big)), TooLarge)


def dumps_unbounded(value: object) -> bytes:
    return msgspec.json.encode(value)


def nested(depth: int) -> bytes:
    return b'{"":' * (depth - 1) + b"[]" + b"}" * (depth - 1)


def test_depth_is_bounded_without_recursion() -> None:
    assert loads(nested(MAX_DEPTH))
    for depth in (MAX_DEPTH + 1, 100_000):
        assert f"{depth} levels deep; the most is 64" in message(lambda d=depth: loads(nested(d)))  # type: ignore[misc]
    assert "levels deep" in message(lambda: loads(b"[" * 1_000_000))
    assert "levels deep" in message(lambda: Signature.of(echo).decode(b"[" * 1_000_000))
    assert "levels deep" in message(lambda: Signature.of(echo).decode_result(b"[" * 1_000_000))


def test_depth_is_bounded_when_writing() -> None:
    value: object = None
    for _ in range(MAX_DEPTH + 1):
        value = [value]
    assert "65 levels deep" in message(lambda: dumps(value))
    for _ in range(100_000):
        value = [value]
    assert "nested too deep" in message(lambda: dumps(value))
    loop: list[object] = []
    loop.append(loop)
    assert "contains itself" in message(lambda: dumps(loop))
    while isinstance(value, list) and value:  # or freeing it would recurse
        value = value.pop()


def test_brackets_in_text_are_not_depth() -> None:
    for text in ("[" * 1000, '\\"[' * 1000, '"' * 999 + "{" * 1000):
        assert loads(dumps({"a": text})) == {"a": text}


def test_hostile_text_is_read_in_linear_time() -> None:
    for data in (b"[" * 65 + b'"' + b'\\"' * 500_000, b'"\\' * 500_000 + b"[" * 65):
        assert message(lambda d=data: loads(d))  # type: ignore[misc]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"])), inner
    ),
)  # fmt: skip


@given(json_values)
def test_json_survives(value: object) -> None:
    assert loads(dumps(value)) == value
    signature = Signature.of(echo)
    assert signature.decode(signature.bind(value)) == {"value": value}


@given(st.binary(max_size=200) | st.text(alphabet='[]{}",:\\ux0', max_size=200).map(str.encode))
def test_any_bytes_give_a_value_or_bad_input(data: bytes) -> None:
    for read in (loads, Signature.of(summarize).decode):
        try:
            read(data)
        except BadInput as error:
            assert str(error)


# Schemas


def test_the_payload_s_schema() -> None:
    assert Signature.of(summarize).payload_schema() == {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "summarize",
        "description": "Summarize a page, briefly.",
        "type": "object",
        "properties": {
            "url": {"type": "string", "description": "where the page is"},
            "user": {"type": "string"},
            "words": {"type": "integer", "default": 200, "description": "how long"},
        },
        "required": ["url", "user"],
        "additionalProperties": False,
    }
    assert Signature.of(summarize).result_schema() == {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "string",
    }


def test_schemas_of_classes_share_their_definitions() -> None:
    point = Point(1)

    def handler(  # type: ignore[empty-body]
        p: Point, us: list[User], path: Path = Path("x"), p2: Point = point
    ) -> Point: ...

    schema = Signature.of(handler).payload_schema()
    properties: Any = schema["properties"]
    definitions: Any = schema["$defs"]
    assert properties["p"] == {"$ref": "#/$defs/Point"}
    assert properties["p2"] == {"$ref": "#/$defs/Point", "default": {"x": 1, "y": 0}}
    assert properties["us"]["items"] == {"$ref": "#/$defs/User"}
    assert properties["path"] == {"type": "string", "format": "path", "default": "x"}
    assert set(definitions) == {"Point", "User"}
    assert Signature.of(handler).result_schema()["$ref"] == "#/$defs/Point"


# Cost


def test_a_result_that_does_not_fit_is_not_stored() -> None:
    def count() -> int: ...  # type: ignore[empty-body]

    signature = Signature.of(count)
    assert signature.encode_result(3) == b"3"
    with pytest.raises(BadInput, match=r"result of count does not fit.*Expected `?int"):
        signature.encode_result("three")


def test_a_result_without_annotation_is_any_json() -> None:
    def free(): ...  # type: ignore[no-untyped-def]

    assert Signature.of(free).encode_result({"a": [1, None]}) == b'{"a":[1,null]}'
