"""The JSON Schema that `app.external(schema=…)` takes: the common keywords, checked as they say.

A schema with any other keyword is refused when it is declared: a rule that is written down and
not kept is worse than none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from outlast.core.errors import BadInput, suggest
from outlast.core.secret import secret_paths

_TYPES: Final[dict[str, Callable[[object], bool]]] = {
    "object": lambda v: isinstance(v, Mapping),
    "array": lambda v: isinstance(v, list),
    "string": lambda v: isinstance(v, str),
    "boolean": lambda v: isinstance(v, bool),
    "null": lambda v: v is None,
    "integer": lambda v: _is_number(v) and (isinstance(v, int) or float(str(v)).is_integer()),
    "number": lambda v: _is_number(v),
}
_ANNOTATIONS: Final = frozenset(
    {"$schema", "$id", "$comment", "title", "description", "default", "examples", "deprecated",
     "readOnly", "writeOnly", "format", "contentMediaType", "contentEncoding"}
)  # fmt: skip
_CHECKED: Final = frozenset(
    {"type", "enum", "const", "properties", "required", "additionalProperties", "items",
     "prefixItems", "minItems", "maxItems", "uniqueItems", "minLength", "maxLength", "pattern",
     "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minProperties",
     "maxProperties", "anyOf", "oneOf", "allOf", "$ref", "$defs"}
)  # fmt: skip
_BOUNDS: Final[tuple[tuple[str, str, Callable[[float, float], bool], str], ...]] = (
    ("minimum", "number", lambda n, bound: n >= bound, "at least {}"),
    ("maximum", "number", lambda n, bound: n <= bound, "at most {}"),
    ("exclusiveMinimum", "number", lambda n, bound: n > bound, "above {}"),
    ("exclusiveMaximum", "number", lambda n, bound: n < bound, "below {}"),
    ("minLength", "string", lambda n, bound: n >= bound, "at least {} characters long"),
    ("maxLength", "string", lambda n, bound: n <= bound, "at most {} characters long"),
    ("minItems", "array", lambda n, bound: n >= bound, "at least {} items long"),
    ("maxItems", "array", lambda n, bound: n <= bound, "at most {} items long"),
    ("minProperties", "object", lambda n, bound: n >= bound, "at least {} fields wide"),
    ("maxProperties", "object", lambda n, bound: n <= bound, "at most {} fields wide"),
)

Schema = Mapping[str, object]


def check_schema(schema: Schema) -> None:
    """Refuse a schema that `validate` would not keep in full."""
    _check(schema, schema, "#")


def validate(value: object, schema: Schema) -> None:
    """`BadInput` with the path of the first thing in `value` that breaks the schema."""
    try:
        problem = _problem(value, schema, schema, "$")
    except RecursionError:
        problem = "$: nested too deep to be checked."
    if problem:
        where = problem.partition(":")[0]
        if secret_paths(schema):
            problem = f"{where}: does not fit the schema, which has secrets: nothing is quoted."
        raise BadInput(problem, field=where)


# Checking a schema -------------------------------------------------------------------------------


def _check(schema: object, root: Schema, where: str) -> None:
    if isinstance(schema, bool):
        return
    if not isinstance(schema, Mapping):
        raise BadInput(f"Schema {where}: a schema is an object or a boolean, not {schema!r}.")
    for keyword in schema:
        if keyword not in _CHECKED and keyword not in _ANNOTATIONS:
            raise BadInput(
                f"Schema {where}: the keyword {keyword!r} is not checked by Outlast"
                f"{suggest(str(keyword), _CHECKED) or '.'} Checked are:"
                f" {', '.join(sorted(_CHECKED))}."
            )
    names = schema.get("type", [])
    for name in names if isinstance(names, list) else [names]:
        if name not in _TYPES:
            raise BadInput(f"Schema {where}: {name!r} is no type; known are {', '.join(_TYPES)}.")
    if "pattern" in schema:
        try:
            re.compile(str(schema["pattern"]))
        except re.error as error:
            raise BadInput(f"Schema {where}: the pattern is not readable: {error}.") from error
    for keyword, _, _, _ in _BOUNDS:
        if keyword in schema and not _is_number(schema[keyword]):
            raise BadInput(f"Schema {where}: {keyword} needs a number.")
    if "$ref" in schema:
        _resolve(schema["$ref"], root)
    for keyword in ("properties", "$defs"):
        for name, inner in _mapping(schema.get(keyword, {}), f"{where}/{keyword}").items():
            _check(inner, root, f"{where}/{keyword}/{name}")
    for keyword in ("anyOf", "oneOf", "allOf", "prefixItems"):
        for i, inner in enumerate(_sequence(schema.get(keyword, []), f"{where}/{keyword}")):
            _check(inner, root, f"{where}/{keyword}/{i}")
    for keyword in ("items", "additionalProperties"):
        _check(schema.get(keyword, True), root, f"{where}/{keyword}")
    for keyword in ("required", "enum"):
        _sequence(schema.get(keyword, []), f"{where}/{keyword}")


def _mapping(value: object, where: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise BadInput(f"Schema {where}: an object is needed, not {value!r}.")
    return value


def _sequence(value: object, where: str) -> Sequence[object]:
    if not isinstance(value, list | tuple):
        raise BadInput(f"Schema {where}: an array is needed, not {value!r}.")
    return value


def _resolve(ref: object, root: Schema) -> object:
    path = str(ref)
    if path == "#":
        return root
    name = path.removeprefix("#/$defs/")
    found = _mapping(root.get("$defs", {}), "#/$defs").get(name)
    if name == path or found is None:
        raise BadInput(f"Schema: $ref {path!r} leads nowhere; refer to '#/$defs/<name>'.")
    return found


# Checking a value --------------------------------------------------------------------------------


def _problem(value: object, schema: object, root: Schema, at: str) -> str | None:
    if not isinstance(schema, Mapping):
        return None if schema else f"{at}: nothing is allowed here."
    if "$ref" in schema:
        problem = _problem(value, _resolve(schema["$ref"], root), root, at)
        if problem:
            return problem
    if "type" in schema:
        names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        if not any(_TYPES[name](value) for name in names):
            return f"{at}: {_show(value)} is not {' or '.join(map(str, names))}."
    if "enum" in schema and not any(_same(value, one) for one in schema["enum"]):
        return f"{at}: {_show(value)} is none of {', '.join(map(_show, schema['enum']))}."
    if "const" in schema and not _same(value, schema["const"]):
        return f"{at}: {_show(value)} must be {_show(schema['const'])}."
    return (
        _out_of_bounds(value, schema, at)
        or _in_parts(value, schema, root, at)
        or _in_choices(value, schema, root, at)
    )


def _out_of_bounds(value: object, schema: Schema, at: str) -> str | None:
    for keyword, kind, holds, words in _BOUNDS:
        if keyword in schema and _TYPES[kind](value):
            size = value if kind == "number" else len(value)  # type: ignore[arg-type]
            if not holds(size, schema[keyword]):  # type: ignore[arg-type]
                return f"{at}: {_show(value)} must be {words.format(schema[keyword])}."
    if "pattern" in schema and isinstance(value, str):
        pattern = str(schema["pattern"])
        if not re.search(pattern, value):
            return f"{at}: {_show(value)} does not match {pattern!r}."
    if schema.get("uniqueItems") is True and isinstance(value, list):
        for i, item in enumerate(value):
            if any(_same(item, earlier) for earlier in value[:i]):
                return f"{at}[{i}]: {_show(item)} is there twice."
    return None


def _in_parts(value: object, schema: Schema, root: Schema, at: str) -> str | None:
    parts: list[tuple[object, object, str]] = []
    if isinstance(value, Mapping):
        properties = _mapping(schema.get("properties", {}), "properties")
        for name in _sequence(schema.get("required", []), "required"):
            if name not in value:
                return f"{at}.{name}: missing."
        others = schema.get("additionalProperties", True)
        for name, item in value.items():
            if name not in properties and others is False:
                return f"{at}.{name}: not a known field{suggest(name, properties) or '.'}"
            parts.append((item, properties.get(name, others), f"{at}.{name}"))
    elif isinstance(value, list):
        first = _sequence(schema.get("prefixItems", []), "prefixItems")
        rest = schema.get("items", True)
        for i, item in enumerate(value):
            parts.append((item, first[i] if i < len(first) else rest, f"{at}[{i}]"))
    return next((p for part in parts if (p := _problem(part[0], part[1], root, part[2]))), None)


def _in_choices(value: object, schema: Schema, root: Schema, at: str) -> str | None:
    for inner in _sequence(schema.get("allOf", []), "allOf"):
        problem = _problem(value, inner, root, at)
        if problem:
            return problem
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            choices = _sequence(schema[keyword], keyword)
            problems = [_problem(value, inner, root, at) for inner in choices]
            fits = problems.count(None)
            if fits == 0:
                reasons = " ".join(problem for problem in problems if problem)
                return f"{at}: {_show(value)} fits none of {keyword}: {reasons}"
            if keyword == "oneOf" and fits > 1:
                return f"{at}: {_show(value)} fits {fits} of oneOf, and must fit one."
    return None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _same(left: object, right: object) -> bool:
    """Equal as JSON: 1 is 1.0, but not true."""
    return left == right and isinstance(left, bool) == isinstance(right, bool)


def _show(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
