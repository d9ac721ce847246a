"""Reading requests: bodies with a bound on size, time and shape; preferences; nothing trusted."""

from __future__ import annotations

import asyncio
import re
from typing import Final, TypeVar

import msgspec
from fastapi import Request
from msgspec import Raw

from outlast.core.codec import loads
from outlast.core.errors import BadInput
from outlast.http.problems import Refused
from outlast.http.state import live_of

# A payload may have 1 MiB, and its JSON is surrounded by options.
MAX_BODY: Final = 1_258_291
MAX_BATCH_BODY: Final = 16 * 1_048_576
MAX_BATCH: Final = 1_000
MAX_READING: Final = 128 * 1_048_576
"""Of all bodies that are under way at one server: most of them arrive in one piece."""
BODY_S: Final = 30.0
PASSING_S: Final = 5.0
PASSING: Final = 12 * 1_048_576
CLOSE: Final = {"connection": "close"}
"""The rest of the body is not waited for."""
MAX_WAIT_S: Final = 60

_object = msgspec.json.Decoder(dict[str, Raw])
_objects = msgspec.json.Decoder(list[dict[str, Raw]])
_syntax = msgspec.json.Decoder(Raw)
_JSON: Final = re.compile(r"application/(?:json|[\w.+-]+\+json)", re.IGNORECASE)
_WAIT: Final = re.compile(r"(?:^|[,;])\s*wait\s*=\s*\"?([0-9]{1,9})\"?\s*(?=$|[,;])", re.IGNORECASE)

Fields = dict[str, Raw]
T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)


async def read_object(request: Request, most: int = MAX_BODY) -> Fields:
    """The fields of a JSON object, each still to be decoded; no body is an empty object."""
    data = await read(request, most)
    if not data.strip():
        return {}
    return _decode(_object, data)


async def read_as(request: Request, shape: type[S]) -> S:
    """A body of a fixed shape."""
    data = await read(request, MAX_BODY)
    return _decode(msgspec.json.Decoder(shape), data.strip() or b"{}")


async def read_value(request: Request) -> bytes:
    """Any JSON value, checked; no body is `null`."""
    data = await read(request, MAX_BODY)
    if not data.strip():
        return b"null"
    _decode(_syntax, data)
    loads(data, "body")
    return data


def objects(field: Raw, name: str) -> list[Fields]:
    """An array of objects inside a body."""
    try:
        return _objects.decode(field)
    except (msgspec.ValidationError, RecursionError) as error:
        raise BadInput(f"{name}: a list of objects is needed.", field=name) from error


def text(fields: Fields, name: str, example: str) -> str:
    """Take a field out that must be there and be text."""
    value = loads(bytes(fields.pop(name, Raw(b"null"))), name)
    if not isinstance(value, str) or not value:
        raise BadInput(f"{name}: a text is needed, as in {example}.", field=name)
    return value


def nothing_else(fields: Fields, known: str) -> None:
    """Unknown fields are refused: whoever sent them meant something by them."""
    if fields:
        name = next(iter(fields))
        raise BadInput(f"{name}: no such field; known are {known}.", field=name)


async def read(request: Request, most: int) -> bytes:
    """The body, never more than `most` bytes of it, whatever Content-Length says.

    Of one that is too large some more is read, and nothing kept: whoever still writes when the
    connection is closed would see a broken connection instead of the answer.
    """
    told = request.headers.get("content-length", "0")
    too_large = told.isdigit() and int(told[:18]) > most
    body, seen, live = bytearray(), 0, live_of(request)
    try:
        async with asyncio.timeout(PASSING_S if too_large else BODY_S):
            async for chunk in request.stream():
                seen += len(chunk)
                too_large = too_large or seen > most
                if seen > most + PASSING:
                    break
                if too_large:
                    continue
                body += chunk
                live.reading += len(chunk)
                if live.reading > MAX_READING:
                    raise Refused(503, "Too many bodies arrive at once; come back in a moment.")
    except TimeoutError as error:
        if not too_large:
            told = f"The body did not arrive within {BODY_S:.0f} s."
            raise Refused(408, told, headers=CLOSE) from error
    finally:
        live.reading -= len(body)
    if too_large:
        raise _too_large(most)
    if body:
        _check_type(request)
    return bytes(body)


def wait_ms(request: Request) -> int:
    """How long the client would wait for an answer (RFC 7240: what is odd is ignored)."""
    match = _WAIT.search(",".join(request.headers.getlist("prefer")))
    return min(int(match[1]), MAX_WAIT_S) * 1000 if match else 0


def _check_type(request: Request) -> None:
    """Bodies are JSON, and say so: this also keeps other sites' forms out."""
    media, _, parameters = request.headers.get("content-type", "application/json").partition(";")
    charset = parameters.lower().partition("charset=")[2].strip(' "')
    if not _JSON.fullmatch(media.strip()) or charset not in ("", "utf-8", "utf8"):
        raise Refused(415, "Send JSON in UTF-8, with Content-Type: application/json.")
    if request.headers.get("content-encoding", "identity") != "identity":
        raise Refused(415, "Send the body without Content-Encoding.")


def _decode(decoder: msgspec.json.Decoder[T], data: bytes) -> T:
    try:
        data.decode()  # what stays raw would not be checked for UTF-8
        return decoder.decode(data)
    except RecursionError as error:
        raise BadInput("The body is nested too deep.") from error
    except msgspec.ValidationError as error:
        raise BadInput(f"The body has another shape: {error}.".replace("`", "")) from error
    except ValueError as error:
        raise Refused(400, f"The body is not JSON: {error}.", code="bad_json") from error


def _too_large(most: int) -> Refused:
    told = f"The body is larger than {most:,} bytes. Store it and pass a reference."
    return Refused(413, told, headers=CLOSE)
