"""A client for models that speak OpenAI's protocol: OpenRouter, OpenAI, vLLM, Ollama and others.

It does what a handler wants of a model and no more: tokens go to `ctx.emit` as they come, what was
used to `ctx.usage`, and trouble is raised so that Outlast classifies it. When the provider's
headers say that nothing is left, the limit closes for everyone before the next request is refused.

    model = Model("gpt-4o-mini", url="https://api.openai.com/v1", key=key)
    app = Outlast(limits=[model.limit])

    @app.task(limits=[model.limit.key])
    async def ask(ctx: Context, question: str) -> str:
        return (await model.chat(ctx, question)).text
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import ssl
from codecs import BOM_UTF8
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from functools import cache
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from outlast.context import Context
from outlast.core.durations import Duration, show_ms, to_ms
from outlast.core.errors import BadInput
from outlast.core.limits import Limit, Trip
from outlast.core.usage import MAX_COST, MAX_COUNT, MAX_MODEL
from outlast.logs import no_queries
from outlast.systems.refusals import (
    ModelError,
    NetworkTimeout,
    ProtocolError,
    error_in_stream,
    refusal,
    rest_asked,
)

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")

OPENROUTER: Final = "https://openrouter.ai/api/v1"
DEFAULT_MODEL: Final = "meta-llama/llama-3.3-70b-instruct"
SLOTS: Final = 8
MAX_ANSWER: Final = 8 * 1_048_576
MAX_REFUSAL: Final = 64 * 1024

Messages = str | Sequence[Mapping[str, Any]]
"""What is said to a model: one message of a user, or a conversation."""


class Answer(Struct, frozen=True, kw_only=True):
    """What a model said, and what that took."""

    text: str
    model: str
    finish: str | None = None
    """Why it ended: "stop", "length", …"""
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None
    """As the provider tells it; OpenRouter does."""
    first_token_ms: int = 0


class Model:
    """A model behind a URL, with others to fall back on.

    Of all that is asked of one provider, `limit` lets so much pass: slots, a rate, a circuit. Name
    it in `Outlast(limits=[model.limit])` and in the handler's `limits=[model.limit.key]`.

    A call may take `timeout`, and within a stream there may be no silence longer than `stall`. A
    fallback is asked when the one before it is unknown, cannot be reached or fails, and nothing of
    its answer was streamed yet; when all fail, the first one's error counts.
    """

    def __init__(
        self,
        model: str = DEFAULT_MODEL,
        *,
        url: str = OPENROUTER,
        key: str | None = None,
        fallbacks: Sequence[str] = (),
        limit: Limit | None = None,
        timeout: Duration = "30s",
        stall: Duration = "10s",
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
            raise BadInput(
                "A model's url is the base of its API, as in 'https://openrouter.ai/api/v1'; the"
                " key is given apart from it."
            )
        key = (key or "").strip()
        if key and not (key.isascii() and key.isprintable()):
            raise BadInput("The model's key has characters that no key has: copy it anew.")
        self.url = url.rstrip("/")
        self.models = (model, *fallbacks)
        self.limit = limit or Limit(
            f"llm:{parts.netloc}", slots=SLOTS, trip=Trip(rate=0.5, volume=10, open="60s")
        )
        self._key = key
        self._timeout_ms = to_ms(timeout)
        self._stall_ms = to_ms(stall)
        self._is_near = _is_loopback(parts.hostname)

    @classmethod
    def from_env(cls) -> Model | None:
        """As `OPENROUTER_API_KEY`, `OPENROUTER_BASE_URL` and `OPENROUTER_MODEL` say; None when
        there is neither a key nor a URL. Of several models, apart by commas, the first is asked."""
        key, url = os.environ.get("OPENROUTER_API_KEY"), os.environ.get("OPENROUTER_BASE_URL")
        if not key and not url:
            return None
        named = os.environ.get("OPENROUTER_MODEL", "").split(",")
        model, *fallbacks = [name.strip() for name in named if name.strip()] or [DEFAULT_MODEL]
        return cls(model, url=url or OPENROUTER, key=key, fallbacks=fallbacks)

    def __repr__(self) -> str:
        return f"<Model {self.models[0]} at {self.url}>"

    async def chat(
        self, ctx: Context, messages: Messages, *, emit: bool = True, **parameters: Any
    ) -> Answer:
        """The answer to a conversation; unless told otherwise, streamed to whoever follows the
        task. `parameters` go along: `temperature=0.2`, `max_tokens=300`."""
        told = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
        first: Exception | None = None
        for model in self.models:
            body = {**parameters, "model": model, "messages": told, "stream": True}
            body["stream_options"] = {"include_usage": True}
            hearing = _Hearing(ctx, model, emit)
            try:
                async with self._asked(ctx, "chat/completions", body) as reply:
                    await self._hear(reply, hearing)
                answer = hearing.answer()
            except (ModelError, NetworkTimeout) as problem:
                first = first or problem
                if (emit and hearing.text) or not _another_may_help(problem):
                    raise first from None
                ctx.log.warning("%s does not answer: %s", model, problem)
            else:
                await ctx.usage(
                    cost=answer.cost,
                    model=answer.model,
                    input_tokens=answer.input_tokens,
                    output_tokens=answer.output_tokens,
                    first_token_ms=answer.first_token_ms,
                    answers=1,  # what the sum of the line above is to be divided by
                )
                return answer
        assert first is not None  # noqa: S101  # there is at least one model
        raise first

    async def embed(
        self, ctx: Context, texts: Sequence[str], **parameters: Any
    ) -> list[list[float]]:
        """A vector for each text; `parameters` go along: `dimensions=256`."""
        model = self.models[0]
        body = {**parameters, "model": model, "input": list(texts)}
        async with self._asked(ctx, "embeddings", body) as reply:
            told = _decoded(await _whole(reply, MAX_ANSWER), _Embeddings)
        found = sum(bool(one.embedding) for one in told.data)
        if not found == len(told.data) == len(texts):
            raise ProtocolError(f"{model} gave {found} vectors for {len(texts)} texts.")
        used = told.usage or _Usage()
        tokens = round(_at_most(used.prompt_tokens, MAX_COUNT))
        await ctx.usage(
            cost=_at_most(used.cost, MAX_COST),
            model=model[:MAX_MODEL],
            input_tokens=tokens,
            texts=len(texts),
        )
        return [one.embedding for one in sorted(told.data, key=lambda one: one.index)]

    # in detail -----------------------------------------------------------------------------------

    @asynccontextmanager
    async def _asked(
        self, ctx: Context, path: str, body: Mapping[str, Any]
    ) -> AsyncIterator[httpx2.Response]:
        """The reply to a request, once it has begun and is no refusal; all of it within the time
        of a call. What the client raises becomes an error of ours, which names the provider."""
        import httpx2

        logging.getLogger("httpx2").addFilter(no_queries)
        headers = {"user-agent": "outlast"}
        if self._key:
            headers["authorization"] = f"Bearer {self._key}"
        try:
            async with (
                asyncio.timeout(self._timeout_ms / 1_000),
                httpx2.AsyncClient(
                    verify=_tls(),
                    trust_env=not self._is_near,
                    timeout=None,
                ) as http,
                http.stream("POST", f"{self.url}/{path}", json=body, headers=headers) as reply,
            ):
                if reply.status_code != 200:
                    said = self._masked(await _whole(reply, MAX_REFUSAL))
                    raise refusal(reply.status_code, reply.headers, said, ctx.now)
                if rest_ms := rest_asked(reply.headers, ctx.now):
                    await ctx.pause(self.limit.key, f"{rest_ms}ms")
                yield reply
        except NetworkTimeout:
            raise
        except TimeoutError:
            after = show_ms(self._timeout_ms)
            raise NetworkTimeout(f"{self.url} did not answer to the end within {after}.") from None
        except httpx2.RequestError as problem:
            told = f"{type(problem).__name__}: {problem}"
            raise ProtocolError(f"The connection to {self.url} failed: {told}") from problem

    async def _hear(self, reply: httpx2.Response, hearing: _Hearing) -> None:
        """All that the model says. A server that does not stream says it at once."""
        if "text/event-stream" not in reply.headers.get("content-type", ""):
            await hearing.take(await _whole(reply, MAX_ANSWER))
            return
        async with aclosing(_lines(reply)) as lines:
            while True:
                try:
                    async with asyncio.timeout(self._stall_ms / 1_000 if hearing.text else None):
                        line = await anext(lines, None)
                except TimeoutError:
                    silent = show_ms(self._stall_ms)
                    raise NetworkTimeout(
                        f"{self.url} fell silent for {silent} in the middle of its answer."
                    ) from None
                name, _, data = (line or b"").partition(b":")
                if line is None or data.strip() == b"[DONE]":
                    return
                if name == b"data":  # others keep the connection alive
                    await hearing.take(data)

    def _masked(self, said: bytes) -> bytes:
        """A provider that quotes the key it was given does not get it into a record."""
        return said.replace(self._key.encode(), b"***") if self._key else said


class _Hearing:
    """What has been heard of one answer so far."""

    def __init__(self, ctx: Context, model: str, emit: bool) -> None:
        self.text = ""
        self._ctx = ctx
        self._model = model
        self._emit = emit
        self._finish: str | None = None
        self._usage = _Usage()
        self._begun = monotonic()
        self._first_ms = 0

    async def take(self, data: bytes) -> None:
        """A chunk of the stream, or all of an answer."""
        chunk = _decoded(data, _Chunk)
        if chunk.error is not None:
            raise error_in_stream(chunk.error, self._ctx.now)
        self._usage = chunk.usage or self._usage
        self._model = chunk.model or self._model
        for choice in chunk.choices or ():
            self._finish = choice.finish_reason or self._finish
            said = choice.message or choice.delta
            if said is not None and (piece := said.content):
                self._first_ms = self._first_ms or round((monotonic() - self._begun) * 1_000)
                self.text += piece
                if self._emit:
                    await self._ctx.emit(piece)

    def answer(self) -> Answer:
        if self._finish == "error":
            raise error_in_stream("the model broke off with an error", self._ctx.now)
        if self._finish is None:
            how = "ended in the middle" if self.text else "is none"
            raise ProtocolError(f"The answer of {self._model} {how}.")
        if not self.text:
            raise ProtocolError(f"{self._model} answered nothing ({self._finish}).")
        return Answer(
            text=self.text,
            model=self._model[:MAX_MODEL],
            finish=self._finish,
            input_tokens=round(_at_most(self._usage.prompt_tokens, MAX_COUNT)),
            output_tokens=round(_at_most(self._usage.completion_tokens, MAX_COUNT)),
            cost=None if self._usage.cost is None else _at_most(self._usage.cost, MAX_COST),
            first_token_ms=self._first_ms,
        )


# The wire: what is read of it; whatever else is there is ignored ---------------------------------


class _Usage(Struct, frozen=True):
    prompt_tokens: Any = 0
    completion_tokens: Any = 0
    cost: Any = None


class _Said(Struct, frozen=True):
    content: str | None = None


class _Choice(Struct, frozen=True):
    delta: _Said | None = None
    message: _Said | None = None
    finish_reason: str | None = None


class _Chunk(Struct, frozen=True):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    model: str | None = None
    error: Any = None


class _Vector(Struct, frozen=True):
    embedding: list[float]
    index: int = 0


class _Embeddings(Struct, frozen=True):
    data: list[_Vector]
    usage: _Usage | None = None


def _decoded(data: bytes, type: type[T]) -> T:
    try:
        return msgspec.json.decode(data, type=type)
    except (ValueError, RecursionError) as problem:  # also no UTF-8, or nested without end
        raise ProtocolError(f"What came is no answer of a model: {problem}.") from problem


async def _whole(reply: httpx2.Response, most: int) -> bytes:
    """The body, or as much of it as we are willing to read."""
    body = bytearray()
    async for piece in reply.aiter_bytes():
        body += piece
        if len(body) > most:
            break
    return bytes(body[:most])


async def _lines(reply: httpx2.Response) -> AsyncGenerator[bytes, None]:
    rest, size, mark = b"", 0, BOM_UTF8  # which may stand before the first line
    async for piece in reply.aiter_bytes():
        size += len(piece)
        if size > MAX_ANSWER:
            raise ProtocolError(f"The answer is longer than {MAX_ANSWER:,} bytes.")
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield line.removeprefix(mark).rstrip(b"\r")
            mark = b""
    yield rest.removeprefix(mark).rstrip(b"\r")


def _at_most(n: Any, most: float) -> float:
    """What a provider counts wrongly must not cost the answer."""
    is_number = isinstance(n, int | float) and not isinstance(n, bool)
    return min(max(n, 0), most) if is_number else 0


def _another_may_help(problem: Exception) -> bool:
    """Is it this model's trouble? What was asked, and how much of it, is not."""
    status = getattr(problem, "status", None)
    return status is None or status == 404 or status >= 500


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@cache
def _tls() -> ssl.SSLContext:
    """Read once: the certificates of all authorities take 10 ms."""
    return ssl.create_default_context()
