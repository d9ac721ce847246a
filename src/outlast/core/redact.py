"""What people are not shown: fields with telling names, and where a type has its secrets."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from outlast.core.errors import BadInput
from outlast.core.model import Json, Task
from outlast.core.secret import MASK, Mask, Path

REDACTED: Final = (
    "*password", "passwd", "passphrase", "*secret", "*api_key", "access_token", "refresh_token",
    "auth_token", "id_token", "session_token", "*authorization", "*cookie", "*private_key",
    "credentials",
)  # fmt: skip
"""Names of fields that are hidden unless `Outlast(redact=…)` says otherwise. `token` is not among
them: it is what language models stream."""

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode
_NOTHING: Final = re.compile(r"(?!)")
_LOWER: Final = bytes(range(256)).lower()


class Rules:
    """Names and patterns of fields: `password` anywhere, `*.token` inside of something."""

    __slots__ = ("_fields", "_words", "names")

    def __init__(self, names: Iterable[str]) -> None:
        self.names = tuple(names)
        for name in self.names:
            if not isinstance(name, str) or not all(name.split(".")):
                raise BadInput(
                    f"redact: {name!r} is no name of a field; write 'password' or '*.token'.",
                    field="redact",
                )
        paths = [("**", *_same(name).split(".")) for name in self.names]
        self._fields = _matcher(paths, re.IGNORECASE)
        words = {re.escape(_longest(path[-1]).lower().encode()) for path in paths}
        self._words = re.compile(b"|".join(sorted(words)) or rb"(?!)")

    def may_match(self, data: Json) -> bool:
        """A document without such a word is not read at all (3 µs for half a kilobyte)."""
        folded = data.translate(_LOWER, b"_-")
        return self._words.search(folded) is not None or (rb"\u" in data and bool(self.names))

    def hides(self, path: str) -> bool:
        return self._fields.fullmatch(_same(path)) is not None


def redacted(data: Json, rules: Rules, paths: Sequence[Path] = ()) -> Json:
    """A document as people may see it."""
    if not paths and not rules.may_match(data):
        return data
    return _encode(_redacted(_decode(data), rules, paths))


def _redacted(value: object, rules: Rules, paths: Sequence[Path]) -> object:
    hidden = _matcher(paths)

    def shown(value: object, path: str) -> object:
        if value is not None and (hidden.fullmatch(path) or rules.hides(path)):
            return MASK
        if isinstance(value, dict):
            return {key: shown(part, f"{path}/{_step(key)}") for key, part in value.items()}
        if isinstance(value, list):
            return [shown(part, f"{path}/{place}") for place, part in enumerate(value)]
        return value

    return shown(value, "")


def restored(new: Any, old: Any) -> Any:
    """What a person sent back: where it still says `***`, what stood there stays."""
    if new == MASK:
        return new if old is None else old
    if isinstance(new, dict) and isinstance(old, dict):
        return {key: restored(part, old.get(key)) for key, part in new.items()}
    if isinstance(new, list) and isinstance(old, list) and are_side_by_side(new, old):
        return [restored(*parts) for parts in zip(new, old, strict=True)]
    return new


def are_side_by_side(new: list[Any], old: list[Any]) -> bool:
    """Does each item stand for the one in its place? If not, nobody can tell which `***` was
    which, and taken as it is written it would be what the task gets."""
    if len(new) != len(old) and _has_mask(new):
        raise BadInput(
            f"{MASK} stands for what was there, but in a list that had {len(old)} items and now has"
            f" {len(new)} that is not clear: write out what is to stand there."
        )
    return len(new) == len(old)


def _has_mask(value: object) -> bool:
    if isinstance(value, dict):
        return any(map(_has_mask, value.values()))
    if isinstance(value, list):
        return any(map(_has_mask, value))
    return value == MASK


def values_at(data: Json, paths: Sequence[Path]) -> list[object]:
    """The values at some places of a document."""
    matcher = _matcher(paths)
    return [value for path, value in _walk(_decode(data), "") if matcher.fullmatch(path)]


def places_below(data: Json, paths: Sequence[Path], start: Sequence[str]) -> Iterator[Path]:
    """Where secrets are in the part of a document that `start` leads to, as seen from there; the
    part itself, if it is one or is in one."""
    matcher, above = _matcher(paths), [*map(_step, start)]
    for path, _ in _walk(_decode(data), ""):
        if matcher.fullmatch(path):
            place = path.split("/")[1:]
            common = min(len(place), len(above))
            if place[:common] == above[:common]:
                yield tuple(place[common:])


def _walk(value: object, path: str) -> Iterator[tuple[str, object]]:
    yield path, value
    if isinstance(value, dict):
        for key, part in value.items():
            yield from _walk(part, f"{path}/{_step(key)}")
    elif isinstance(value, list):
        for place, part in enumerate(value):
            yield from _walk(part, f"{path}/{place}")


def _matcher(paths: Sequence[Path], flags: int = 0) -> re.Pattern[str]:
    if not paths:
        return _NOTHING
    return re.compile("|".join("".join(map(_part, path)) for path in paths), flags)


def _part(step: str) -> str:
    return r"(?:/[^/]*)*" if step == "**" else "/" + "".join(map(_char, _step(step)))


def _char(char: str) -> str:
    return "[^/]*" if char == "*" else re.escape(char)


def _longest(step: str) -> str:
    return max(step.split("*"), key=len)


def _step(name: str) -> str:
    return name.replace("/", "_")


def _same(name: str) -> str:
    """`api-key`, `api_key` and `ApiKey` are the same name."""
    return name.replace("-", "").replace("_", "")


# What a task has to hide -------------------------------------------------------------------------


class Hidden(Struct, frozen=True, omit_defaults=True):
    """Where payload and result of a type hold secrets."""

    payload: tuple[Path, ...] = ()
    result: tuple[Path, ...] = ()

    def covers(self, path: str) -> bool:
        """Is what a dotted path into the payload leads to secret, or in something that is?"""
        steps = path.split(".")
        places = ("".join(f"/{_step(step)}" for step in steps[:n]) for n in range(len(steps) + 1))
        matcher = _matcher(self.payload)
        return any(matcher.fullmatch(place) for place in places)

    def to_meta(self) -> Json:
        """What is kept with a task: whoever shows it may not know its type."""
        return _encode({"secret": self}) if self.payload or self.result else b"{}"


class _Meta(Struct):
    secret: Hidden = Hidden()


NOTHING: Final = Hidden()
_meta: Final = msgspec.json.Decoder(_Meta)


def hidden_by(meta: Json, known: Hidden = NOTHING) -> Hidden:
    """What a task has to hide, by what is kept with it and what is known of its type."""
    if b'"secret"' not in meta:
        return known
    kept = _meta.decode(meta).secret
    return Hidden(known.payload + kept.payload, known.result + kept.result)


def hiding(meta: Json, more: Hidden) -> Json:
    """What is kept with a task, and that it has these secrets, too."""
    if more == NOTHING:
        return meta
    kept = hidden_by(meta)
    both = Hidden(_all(kept.payload + more.payload), _all(kept.result + more.result))
    return _encode({**msgspec.json.decode(meta, type=dict[str, msgspec.Raw]), "secret": both})


def _all(paths: Sequence[Path]) -> tuple[Path, ...]:
    return tuple(dict.fromkeys(paths))


def mask_of(payload: Json, meta: Json, known: Hidden = NOTHING) -> Mask | None:
    """What takes the secrets of a payload out of texts; None when it has none."""
    paths = hidden_by(meta, known).payload
    return Mask(values_at(payload, paths)) if paths else None


class Redactor:
    """Shows documents of tasks to people. `known` tells what the program knows of a type."""

    __slots__ = ("_known", "rules", "traces")

    def __init__(
        self,
        rules: Rules,
        known: Callable[[str], Hidden] = lambda _type: NOTHING,
        *,
        traces: bool = True,
    ) -> None:
        self.rules = rules
        self.traces = traces
        """Are tracebacks of errors shown? They quote the program, which is not for end users."""
        self._known = known

    def for_end_users(self) -> Redactor:
        return Redactor(self.rules, self._known, traces=False)

    def hidden(self, task: Task) -> Hidden:
        return hidden_by(task.meta, self._known(task.type))

    def hidden_of(self, type: str) -> Hidden:
        return self._known(type)

    def shown(self, data: Json, paths: Sequence[Path] = ()) -> Json:
        return redacted(data, self.rules, paths)

    def event(self, told: dict[str, object]) -> dict[str, object]:
        """The data of an event that was read already."""
        found: dict[str, object] = _decode(self.shown(_encode(told)))
        return found


REDACTOR: Final = Redactor(Rules(REDACTED))
"""For those who have no app to ask."""
