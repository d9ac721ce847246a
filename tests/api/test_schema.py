"""The JSON Schema of external types: kept in full, or refused."""

import pytest
from pydantic import BaseModel

from outlast import BadInput
from outlast.schema import check_schema, validate

REPORT = {
    "type": "object",
    "required": ["title", "pages"],
    "additionalProperties": False,
    "properties": {
        "title": {"type": "string", "minLength": 1, "maxLength": 10, "pattern": "^[A-Z]"},
        "pages": {"type": "integer", "minimum": 1, "exclusiveMaximum": 100},
        "format": {"enum": ["pdf", "html"]},
        "version": {"const": 2},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2, "uniqueItems": True},
        "owner": {"anyOf": [{"$ref": "#/$defs/person"}, {"type": "null"}]},
        "size": {"oneOf": [{"type": "integer"}, {"minimum": 5}]},
        "point": {"prefixItems": [{"type": "number"}, {"type": "boolean"}], "items": False},
    },
    "$defs": {"person": {"type": "object", "required": ["name"]}},
}
GOOD: dict[str, object] = {"title": "Abc", "pages": 3.0}


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"format": "pdf", "version": 2, "tags": ["a", "b"]},
        {"owner": {"name": "ada"}},
        {"owner": None},
        {"size": 3},
        {"point": [1.5, True]},
    ],
)
def test_what_fits_passes(more: dict[str, object]) -> None:
    check_schema(REPORT)
    validate({**GOOD, **more}, REPORT)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ([], "$: [] is not object."),
        ({"title": "Abc"}, "$.pages: missing."),
        ({**GOOD, "titel": 1}, "$.titel: not a known field; did you mean 'title'?"),
        ({**GOOD, "title": "abc"}, "$.title: 'abc' does not match '^[A-Z]'."),
        ({**GOOD, "title": ""}, "$.title: '' must be at least 1 characters long."),
        ({**GOOD, "pages": 2.5}, "$.pages: 2.5 is not integer."),
        ({**GOOD, "pages": True}, "$.pages: True is not integer."),
        ({**GOOD, "pages": 100}, "$.pages: 100 must be below 100."),
        ({**GOOD, "format": "doc"}, "$.format: 'doc' is none of 'pdf', 'html'."),
        ({**GOOD, "version": True}, "$.version: True must be 2."),
        ({**GOOD, "tags": ["a", 1]}, "$.tags[1]: 1 is not string."),
        ({**GOOD, "tags": ["a", "a"]}, "$.tags[1]: 'a' is there twice."),
        ({**GOOD, "size": 7}, "$.size: 7 fits 2 of oneOf, and must fit one."),
        ({**GOOD, "point": [1, True, 3]}, "$.point[2]: nothing is allowed here."),
    ],
)
def test_what_does_not_fit_is_named_with_its_path(value: object, problem: str) -> None:
    with pytest.raises(BadInput) as caught:
        validate(value, REPORT)
    assert str(caught.value) == problem
    assert caught.value.field == problem.partition(":")[0]


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "objekt"}, "'objekt' is no type"),
        ({"properties": {"a": {"minimun": 3}}}, "did you mean 'minimum'?"),
        ({"if": {}}, "'if' is not checked"),
        ({"$ref": "#/$defs/nobody"}, "leads nowhere"),
        ({"pattern": "("}, "not readable"),
        ({"maximum": "ten"}, "needs a number"),
        ({"items": 3}, "an object or a boolean"),
    ],
)
def test_a_schema_that_could_not_be_kept_is_refused(schema: dict[str, object], words: str) -> None:
    with pytest.raises(BadInput, match="Schema") as caught:
        check_schema(schema)
    assert words in str(caught.value)


class Node(BaseModel):
    name: str
    children: list["Node"] = []


def test_schemas_that_pydantic_makes_are_understood() -> None:
    schema = Node.model_json_schema()
    check_schema(schema)
    validate({"name": "a", "children": [{"name": "b"}]}, schema)
    with pytest.raises(BadInput, match=r"\$\.children\[0\]\.name: missing"):
        validate({"name": "a", "children": [{}]}, schema)


def test_a_schema_that_refers_to_itself_only_says_no() -> None:
    with pytest.raises(BadInput, match="too deep"):
        validate(1, {"$ref": "#"})
