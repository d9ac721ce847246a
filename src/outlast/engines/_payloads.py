"""Looking into payloads, by path or by text, the same on every engine."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from itertools import product
from typing import Final

import msgspec
from msgspec import Raw

from outlast.core.errors import BadInput
from outlast.core.model import Json

_object: Final = msgspec.json.Decoder(dict[str, Raw])
_array: Final = msgspec.json.Decoder(list[Raw])
_text: Final = msgspec.json.Decoder(str)
_PLACE: Final = re.compile(r"-?[0-9]{1,9}")


def path_of(field: str) -> list[str]:
    """`payload.user.name` as the steps that lead there."""
    names = field.removeprefix("payload.").split(".")
    if any(not name or '"' in name for name in names):
        raise BadInput(f"No path into a payload: {field!r}", field=field)
    return names


def at_path(payload: Json, names: Sequence[str]) -> str | None:
    """The value at a path as it is written there, a text without its quotes; None where there is
    none. In a list a step is a place, as in `items.0.name`."""
    value: Json | Raw = payload
    try:
        for name in names:
            if bytes(value).lstrip()[:1] == b"[":
                value = _array.decode(value)[int(name)] if _PLACE.fullmatch(name) else b"null"
            else:
                value = _object.decode(value)[name]
        written = bytes(value).strip()
        if written[:1] == b'"':
            return _text.decode(written)
    except (msgspec.DecodeError, KeyError, IndexError):
        return None
    return None if written == b"null" else written.decode()


def spellings(values: Iterable[object]) -> tuple[str, ...]:
    """How texts may stand in JSON, which is kept as it was sent: some clients write `ü` by its
    number, or `/` with a backslash."""
    found: dict[str, None] = {}
    for value in values:
        text = str(value)
        found[text] = None
        for is_ascii, slash in product((False, True), ("/", "\\/")):
            found[json.dumps(text, ensure_ascii=is_ascii)[1:-1].replace("/", slash)] = None
    return tuple(found)
