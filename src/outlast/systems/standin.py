"""A stand-in for a model: an OpenAI-compatible server on this machine that needs no network.

It streams believable text word by word, embeds, and misbehaves on cue: for tests, examples and
demonstrations. The same seed, model and messages give the same words.

    async with StandIn() as model:
        model.cue("rate_limit", retry_after=2)
        ...  # the next request to model.url is answered with 429

`python -m outlast.systems.standin` runs it alone. Then cues come over HTTP: `POST /_cue` takes one
cue or a list, `DELETE /_cue` forgets those that wait.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import struct
import sys
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from time import time
from types import TracebackType
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from outlast.core.errors import BadInput, Conflict, NotFound
from outlast.systems import extract
from outlast.systems.embed import DIMENSIONS, MAX_DIMENSIONS, embed

MAX_HEAD: Final = 64 * 1024
MAX_BODY: Final = 8 * 1024 * 1024
# What a million tokens cost, in and out.
PRICE: Final = (0.2, 0.8)
_LENGTH: Final = re.compile(rb"^content-length: *(\d{1,9}) *\r$", re.IGNORECASE | re.MULTILINE)
_SENTENCES: Final = re.compile(r"\b(\d{1,2}) sentences?\b")
_TOKEN: Final = re.compile(r"\s*\S+")
_REASONS: Final = {
    200: "OK", 400: "Bad Request", 401: "Unauthorized", 402: "Payment Required", 403: "Forbidden",
    404: "Not Found", 408: "Request Timeout", 409: "Conflict", 429: "Too Many Requests",
    500: "Internal Server Error", 502: "Bad Gateway", 503: "Service Unavailable",
    504: "Gateway Timeout",
}  # fmt: skip

What = Literal[
    "fine", "rate_limit", "error", "error_in_stream", "slow", "stall", "cut", "malformed", "wrong"
]


class Cue(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the next requests get. Cues are used up in order; then all is well again.

    `rate_limit` answers 429, `error` the `status`. `error_in_stream`, `stall`, `cut` (the
    connection ends) and `malformed` (a chunk that is no JSON) come when `after` words have been
    streamed; `slow` lets `seconds` pass before the first one; `wrong` answers 200 with other JSON.
    """

    do: What
    times: int = 1
    model: str | None = None
    """Only for requests that ask for this one."""
    status: int = 500
    retry_after: float | str | None = None
    after: int = 5
    seconds: float = 1.0
    body: dict[str, Any] = {}
    """What `wrong` answers; something that is no answer, if nothing else is said."""
    headers: dict[str, str] = {}
    """More of the answer's headers, such as `x-ratelimit-remaining-requests`."""


class Asked(Struct, frozen=True):
    """A request that came."""

    path: str
    model: str
    body: dict[str, Any]
    got: What


class Line:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(
        self, status: int, body: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> None:
        data = json.dumps(body).encode()
        told = {"content-type": "application/json", "content-length": str(len(data))}
        self.writer.write(_head(status, {**told, **(headers or {})}) + data)
        await self.writer.drain()


class StandIn:
    """The server, in this event loop: `async with StandIn(seed=7) as model: model.url`.

    It listens on loopback only. Between two words `pace_s` pass.
    """

    def __init__(
        self, *, seed: int = 7, pace_s: float = 0.0, models: tuple[str, ...] = ("parrot",),
        port: int = 0,
    ) -> None:  # fmt: skip
        self.models = models
        self.asked: list[Asked] = []
        """Everything that was asked so far, in order."""
        self._seed = seed
        self._pace_s = pace_s
        self._port = port
        self._cues: list[Cue] = []
        self._server: asyncio.Server | None = None
        self._busy: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """The base of its addresses, as OPENROUTER_BASE_URL takes it."""
        if self._server is None:
            raise Conflict("The stand-in does not run: use it inside `async with`.")
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"

    def cue(self, do: What, **more: Any) -> None:
        """How it is to misbehave next; `more` are the fields of `Cue`."""
        self._take_cues(msgspec.json.encode({"do": do, **more}))

    def forget(self) -> None:
        """No more cues."""
        self._cues.clear()

    async def __aenter__(self) -> StandIn:
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", self._port, limit=MAX_HEAD
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()
            for task in self._busy:
                task.cancel()
            if self._busy:
                await asyncio.wait(self._busy)
            await server.wait_closed()

    # requests ------------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request per connection; it ends with the answer."""
        task: asyncio.Task[None] = asyncio.current_task()  # type: ignore[assignment]  # we are one
        self._busy.add(task)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                head = await reader.readuntil(b"\r\n\r\n")
                method, path = head.decode("latin-1").split(" ", 2)[:2]
                found = _LENGTH.search(head)
                size = int(found[1]) if found else 0
                body = await reader.readexactly(size) if size <= MAX_BODY else b""
                await self._answer(Line(reader, writer), method, path, body)
        except asyncio.CancelledError:
            writer.transport.abort()  # we are closed
        finally:
            self._busy.discard(task)
            writer.close()

    async def _answer(self, line: Line, method: str, path: str, body: bytes) -> None:
        try:
            if path.startswith("/_cue"):
                self.forget() if method == "DELETE" else self._take_cues(body)
                await line.send(200, {"waiting": len(self._cues)})
            elif path.endswith("/models"):
                listed = [{"id": name, "object": "model"} for name in self.models]
                await line.send(200, {"object": "list", "data": listed})
            elif path.endswith("/chat/completions"):
                await self._chat(line, path, _object(body))
            elif path.endswith("/embeddings"):
                await self._embeddings(line, path, _object(body))
            else:
                raise NotFound(f"There is no {method} {path} here.")
        except (BadInput, NotFound) as problem:
            status = 404 if isinstance(problem, NotFound) else 400
            await line.send(status, _error(status, str(problem)))

    def _take_cues(self, body: bytes) -> None:
        try:
            cues = msgspec.json.decode(body, type=Cue | list[Cue])
        except msgspec.DecodeError as problem:
            raise BadInput(f"{problem}; a cue is as in {{'do': 'rate_limit'}}.") from problem
        self._cues += [cues] if isinstance(cues, Cue) else cues

    def _next_cue(self, path: str, asked: dict[str, Any]) -> Cue:
        model = str(asked.get("model"))
        if model not in self.models:
            raise NotFound(f"There is no model {model!r}; there are {', '.join(self.models)}.")
        cue = Cue(do="fine")
        for n, waiting in enumerate(self._cues):
            if waiting.model in (None, model):
                cue = waiting
                left = msgspec.structs.replace(waiting, times=waiting.times - 1)
                self._cues[n : n + 1] = [left] if left.times > 0 else []
                break
        self.asked.append(Asked(path, model, asked, cue.do))
        return cue

    async def _refused(self, line: Line, cue: Cue) -> bool:
        """Was the request answered by its cue alone?"""
        headers = dict(cue.headers)
        if cue.retry_after is not None:
            headers["retry-after"] = str(cue.retry_after)
        if cue.do == "rate_limit":
            await line.send(429, _error(429, "Rate limit reached."), headers)
        elif cue.do == "error":
            await line.send(cue.status, _error(cue.status, "The model is ill."), headers)
        elif cue.do == "wrong":
            await line.send(200, cue.body or {"hello": "I am no answer."}, headers)
        else:
            return False
        return True

    # chat ----------------------------------------------------------------------------------------

    async def _chat(self, line: Line, path: str, asked: dict[str, Any]) -> None:
        cue = self._next_cue(path, asked)
        if await self._refused(line, cue):
            return
        if cue.do == "slow":
            await asyncio.sleep(cue.seconds)
        messages = asked.get("messages")
        if not isinstance(messages, list) or not messages:
            raise BadInput("messages: a list with at least one message is needed.")
        model = str(asked["model"])
        text = said(self._seed, model, messages)
        usage: dict[str, Any] | None = usage_for(json.dumps(messages), text)
        about = {"id": f"gen-{len(self.asked)}", "created": int(time()), "model": model}
        if not asked.get("stream"):
            message = {"role": "assistant", "content": text}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            whole = {**about, "object": "chat.completion", "choices": [choice], "usage": usage}
            await line.send(200, whole, cue.headers)
            return
        about["object"] = "chat.completion.chunk"
        line.writer.write(_head(200, {"content-type": "text/event-stream", **cue.headers}))
        if (asked.get("stream_options") or {}).get("include_usage") is not True:
            usage = None
        async for event in self._events(cue, about, text, usage):
            line.writer.write(f"data: {event}\n\n".encode())
            await line.writer.drain()
        if cue.do == "stall":
            await line.reader.read()  # until whoever asked has had enough

    async def _events(
        self, cue: Cue, about: Mapping[str, Any], text: str, usage: dict[str, Any] | None
    ) -> AsyncIterator[str]:
        """The stream's events, up to where the cue lets it go wrong."""

        def chunk(delta: dict[str, str], finish: str | None = None) -> str:
            choice = {"index": 0, "delta": delta, "finish_reason": finish}
            return json.dumps({**about, "choices": [choice]})

        words = _TOKEN.findall(text)
        goes_wrong = cue.do in ("stall", "cut", "malformed", "error_in_stream")
        for word in words[: cue.after] if goes_wrong else words:
            yield chunk({"role": "assistant", "content": word})
            await asyncio.sleep(self._pace_s)
        if cue.do == "malformed":
            yield '{"choices": [{"delta": {"content": "and th'
        elif cue.do == "error_in_stream":
            told = _error(cue.status, "The model fell ill in the middle.")
            choice = {"index": 0, "delta": {"content": ""}, "finish_reason": "error"}
            yield json.dumps({**about, **told, "choices": [choice]})
        if goes_wrong:
            return
        yield chunk({}, "stop")
        if usage is not None:
            yield json.dumps({**about, "choices": [], "usage": usage})
        yield "[DONE]"

    # embeddings ----------------------------------------------------------------------------------

    async def _embeddings(self, line: Line, path: str, asked: dict[str, Any]) -> None:
        cue = self._next_cue(path, asked)
        if await self._refused(line, cue):
            return
        given = asked.get("input")
        texts: list[Any] = given if isinstance(given, list) else [given]
        dimensions = asked.get("dimensions", DIMENSIONS)
        if not texts or not all(isinstance(text, str) for text in texts):
            raise BadInput("input: a text or a list of texts is needed.")
        if not isinstance(dimensions, int) or not 1 <= dimensions <= MAX_DIMENSIONS:
            raise BadInput(f"dimensions: a number from 1 to {MAX_DIMENSIONS} is needed.")
        data: list[dict[str, Any]] = []
        for n, text in enumerate(texts):
            vector: list[float] | str = embed(text, dimensions)
            if asked.get("encoding_format") == "base64":
                vector = b64encode(struct.pack(f"<{dimensions}f", *vector)).decode()
            data.append({"object": "embedding", "index": n, "embedding": vector})
        tokens = sum(tokens_of(text) for text in texts)
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        whole = {"object": "list", "data": data, "model": asked["model"], "usage": usage}
        await line.send(200, whole, cue.headers)


# What it says ------------------------------------------------------------------------------------

_PARTS: Final = (
    ("The queue", "A worker", "The scheduler", "Every lease", "The engine", "The log"),
    ("keeps", "hands over", "remembers", "waits for", "counts", "gives back", "outlives"),
    ("its promise", "the next task", "what was said", "a slow answer", "the fence", "the night"),
    ("before noon", "while others sleep", "in good order", "without haste", "more than once"),
)


def said(seed: int, model: str, messages: list[Any]) -> str:
    """The answer: of a text, the sentences that say most; to a short question, a few of its own."""
    chance = random.Random(f"{seed}/{model}/{json.dumps(messages, sort_keys=True)}")  # noqa: S311
    last = messages[-1]
    text = str(last.get("content") if isinstance(last, Mapping) else last)
    wish = _SENTENCES.search(json.dumps(messages))
    most = max(1, int(wish[1])) if wish else 3
    if len(extract.sentences(text)) > most:
        return " ".join(extract.summarize(text, most))
    lines = []
    for _ in range(most):
        lines.append(" ".join(map(chance.choice, _PARTS)) + ".")
    return " ".join(lines)


def tokens_of(text: str) -> int:
    """Roughly what a model would count."""
    return max(1, len(text) // 4)


def usage_for(prompt: str, text: str) -> dict[str, Any]:
    """What providers tell with the last chunk, the cost as OpenRouter does."""
    came, went = tokens_of(prompt), tokens_of(text)
    cost = round((came * PRICE[0] + went * PRICE[1]) / 1_000_000, 9)
    return {
        "prompt_tokens": came,
        "completion_tokens": went,
        "total_tokens": came + went,
        "cost": cost,
    }


def _object(body: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.DecodeError as problem:
        raise BadInput(f"The body is no JSON object: {problem}.") from problem


def _error(code: int, message: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": message}}


def _head(status: int, headers: Mapping[str, str]) -> bytes:
    told = {"connection": "close", **headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in told.items())
    return f"HTTP/1.1 {status} {_REASONS.get(status, 'Other')}\r\n{lines}\r\n".encode("latin-1")


async def _run(port: int, seed: int, pace_s: float, models: tuple[str, ...]) -> None:
    async with StandIn(port=port, seed=seed, pace_s=pace_s, models=models) as model:
        sys.stdout.write(f"{model.url}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description="A stand-in for a model, for offline use.")
    parser.add_argument("--port", type=int, default=0, help="0 is any; the address is printed")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--pace", type=float, default=0.02, help="seconds between two words")
    parser.add_argument("--models", default="parrot", help="names, apart by commas")
    told = parser.parse_args()
    with suppress(KeyboardInterrupt):
        asyncio.run(_run(told.port, told.seed, told.pace, tuple(told.models.split(","))))


if __name__ == "__main__":
    main()
