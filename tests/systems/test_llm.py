"""A model's client against a model that misbehaves: each trouble is classified as the summaries'
design says, and what a failed attempt has streamed is rolled back for whoever reads.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from codecs import BOM_UTF8
from collections.abc import AsyncIterator
from typing import Any

import pytest

from outlast import BadInput, Context, Outlast
from outlast.core.model import Task
from outlast.systems.llm import DEFAULT_MODEL, OPENROUTER, Model
from outlast.systems.refusals import refusal, rest_asked
from outlast.systems.standin import StandIn
from outlast.testing import testing
from outlast.usage import used_by

KEY = "sk-very-secret"
NOW = 1_700_000_000_000


@pytest.fixture
async def standin() -> AsyncIterator[StandIn]:
    async with StandIn(models=("parrot", "raven")) as standin:
        yield standin


class Setting:
    """An app that asks the stand-in, on an engine whose time passes when told to."""

    def __init__(self, standin: StandIn, t: testing, model: Model) -> None:
        self.standin, self.t, self.model = standin, t, model

    async def run(self, *, question: str = "Why?", **options: Any) -> Task:
        handle = await self.t.app.handlers["ask"].options(**options).enqueue(question)
        await self.t.run()
        return await self.t.task(handle)

    async def first_attempt(self, **cue: Any) -> Task:
        """One that meets this trouble; for a stall it has little patience."""
        self.standin.cue(**cue)
        if cue["do"] == "stall":
            self.model._stall_ms = 50
        task = await self.run()
        self.model._stall_ms = 10_000
        return task


def asking(model: Model, **options: Any) -> Outlast:
    app = Outlast("memory://", limits=[model.limit])

    @app.task(limits=[model.limit.key], **options)
    async def ask(ctx: Context, question: str) -> str:
        return (await model.chat(ctx, question)).text

    return app


@pytest.fixture
async def setting(standin: StandIn) -> AsyncIterator[Setting]:
    model = Model("parrot", url=standin.url, key=KEY)
    async with testing(asking(model)) as t:
        yield Setting(standin, t, model)


def error_of(task: Task) -> dict[str, Any]:
    error: dict[str, Any] = json.loads(task.error or b"{}")
    return error


async def test_words_are_streamed_and_what_was_used_is_recorded(setting: Setting) -> None:
    task = await setting.run()
    assert task.status == "completed"
    text = json.loads(task.result or b"")
    events = await setting.t.events(task)
    chunks = [event.data["chunk"] for event in events if event.kind == "chunk"]
    assert "".join(chunks) == text
    assert len(chunks) == len(text.split())
    used = (await used_by(setting.t.app.engine, task.id)).total
    assert used.input_tokens > 0 and used.output_tokens > 0
    assert used.tokens == used.input_tokens + used.output_tokens
    assert used.billionths > 0
    assert used.more["first_token_ms"] >= 0
    [asked] = setting.standin.asked
    assert asked.body["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize(
    ("cue", "code", "type", "least_s"),
    [
        ({"do": "error", "status": 500}, "unavailable", "ServiceUnavailable", 5),
        ({"do": "error", "status": 503}, "unavailable", "ServiceUnavailable", 5),
        (
            {"do": "error", "status": 503, "retry_after": 90},
            "unavailable",
            "ServiceUnavailable",
            90,
        ),
        ({"do": "error", "status": 408}, "timeout", "ModelError", 2),
        ({"do": "error_in_stream", "status": 502}, "unavailable", "ServiceUnavailable", 5),
        ({"do": "stall"}, "timeout", "NetworkTimeout", 2),
        ({"do": "cut"}, "network", "ProtocolError", 2),
        ({"do": "malformed"}, "network", "ProtocolError", 2),
        ({"do": "wrong"}, "network", "ProtocolError", 2),
    ],
)
async def test_what_may_pass_is_tried_again_by_its_schedule(
    setting: Setting, cue: dict[str, Any], code: str, type: str, least_s: float
) -> None:
    task = await setting.first_attempt(**cue)
    assert (task.status, task.lane, task.attempt) == ("retrying", "retry", 1)
    assert (error_of(task)["code"], error_of(task)["type"]) == (code, type)
    [attempt] = json.loads(task.attempts)
    assert least_s * 1_000 <= task.run_at - attempt["ended_at"] <= least_s * 1_100
    await setting.t.advance(f"{least_s * 1.1}s")
    await setting.t.run()
    assert await setting.t.status(task) == "completed"


@pytest.mark.parametrize(
    ("status", "code"),
    [(400, "bad_request"), (401, "unauthorized"), (402, "bad_request"), (403, "forbidden"),
     (404, "not_found")],
)  # fmt: skip
async def test_what_cannot_pass_kills_at_once(setting: Setting, status: int, code: str) -> None:
    task = await setting.first_attempt(do="error", status=status)
    assert (task.status, task.reason, task.attempt) == ("dead", "permanent", 1)
    assert error_of(task)["code"] == code
    assert f"answered {status}: The model is ill." in error_of(task)["message"]


@pytest.mark.parametrize(
    ("cue", "least_s", "most_s"),
    [
        ({"retry_after": 7}, 7, 7),
        ({}, 60, 66),  # the first entry of the schedule, with its jitter
        ({"headers": {"x-ratelimit-remaining-requests": "0",
                      "x-ratelimit-reset-requests": "1m30s"}}, 90, 90),
    ],
)  # fmt: skip
async def test_a_429_rests_for_everyone_and_costs_no_attempt(
    setting: Setting, cue: dict[str, Any], least_s: float, most_s: float
) -> None:
    setting.standin.cue("rate_limit", **cue)
    first, second = await setting.run(), await setting.run()
    assert (first.status, first.attempt) == ("throttled", 0)
    assert (second.status, second.attempt) == ("throttled", 0)
    assert len(setting.standin.asked) == 1  # the second one did not even try
    [gauge] = await setting.t.app.engine.gauges([setting.model.limit.key])
    [attempt] = json.loads(first.attempts)
    rest_ms = (gauge.paused_until or 0) - attempt["ended_at"]
    assert least_s * 1_000 <= rest_ms <= most_s * 1_000
    await setting.t.advance(f"{most_s}s")
    await setting.t.run()
    assert {(await setting.t.task(task)).status for task in (first, second)} == {"completed"}


async def test_when_nothing_is_left_the_limit_rests_before_anybody_is_refused(
    setting: Setting,
) -> None:
    headers = {"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "40s"}
    setting.standin.cue("fine", headers=headers)
    first, second = await setting.run(), await setting.run()
    assert (first.status, second.status) == ("completed", "throttled")
    await setting.t.advance("41s")
    await setting.t.run()
    assert await setting.t.status(second) == "completed"
    assert [asked.got for asked in setting.standin.asked] == ["fine", "fine"]


async def test_streamed_text_of_a_failed_attempt_is_rolled_back(setting: Setting) -> None:
    task = await setting.first_attempt(do="stall", after=4)
    await setting.t.advance("3s")
    await setting.t.run()
    kept: list[str] = []
    rolled_back: list[str] = []
    for event in await setting.t.events(task):
        if event.kind == "chunk":
            kept.append(event.data["chunk"])
        elif event.kind == "rollback":
            rolled_back, kept = kept, []
    assert 1 <= len(rolled_back) <= 4
    assert "".join(kept) == json.loads((await setting.t.task(task)).result or b"")


async def test_half_of_ten_that_fail_open_the_circuit(setting: Setting) -> None:
    setting.standin.cue("error", status=503, times=10)
    for _ in range(10):
        await setting.run()
    late = await setting.run()
    assert (late.status, late.attempt) == ("throttled", 0)
    assert len(setting.standin.asked) == 10
    await setting.t.advance("61s")
    await setting.t.run()  # one probes, and the others follow
    assert await setting.t.status(late) == "completed"


async def test_a_call_that_takes_too_long_is_a_timeout(standin: StandIn) -> None:
    model = Model("parrot", url=standin.url, timeout="50ms")
    standin.cue("slow", seconds=20)
    async with testing(asking(model)) as t:
        task = await Setting(standin, t, model).run()
        assert (task.status, error_of(task)["code"]) == ("retrying", "timeout")
        assert "did not answer to the end" in error_of(task)["message"]


@pytest.mark.parametrize("trouble", [{"status": 404}, {"status": 503}, {"do": "wrong"}])
async def test_a_fallback_answers_when_the_first_model_does_not(
    standin: StandIn, trouble: dict[str, Any]
) -> None:
    model = Model("parrot", url=standin.url, fallbacks=["raven"])
    standin.cue(**{"do": "error", "model": "parrot", **trouble})
    async with testing(asking(model)) as t:
        assert (await Setting(standin, t, model).run()).status == "completed"
    assert [asked.model for asked in standin.asked] == ["parrot", "raven"]


@pytest.mark.parametrize(
    ("cue", "code", "models"),
    [
        ({"do": "error", "status": 401}, "unauthorized", ["parrot"]),
        ({"do": "rate_limit"}, "rate_limit", ["parrot"]),
        ({"do": "cut", "after": 3}, "network", ["parrot"]),  # readers have seen three words
        ({"do": "error", "status": 503, "times": 2}, "unavailable", ["parrot", "raven"]),
    ],
)
async def test_no_fallback_where_it_would_not_help_and_the_first_error_counts(
    standin: StandIn, cue: dict[str, Any], code: str, models: list[str]
) -> None:
    model = Model("parrot", url=standin.url, fallbacks=["raven"])
    standin.cue(**cue)
    async with testing(asking(model)) as t:
        assert error_of(await Setting(standin, t, model).run())["code"] == code
    assert [asked.model for asked in standin.asked] == models


async def test_a_server_that_is_not_there_is_a_network_error(standin: StandIn) -> None:
    gone = Model("parrot", url="http://127.0.0.1:9/v1")
    async with testing(asking(gone)) as t:
        task = await Setting(standin, t, gone).run()
        assert (task.status, error_of(task)["code"]) == ("retrying", "network")


async def test_texts_are_embedded(standin: StandIn) -> None:
    model = Model("parrot", url=standin.url)
    app = Outlast("memory://")

    @app.task
    async def vectors(ctx: Context, texts: list[str]) -> list[list[float]]:
        return await model.embed(ctx, texts, dimensions=8)

    async with testing(app) as t:
        handle = await vectors.enqueue(["one", "two"])
        await t.run()
        found = await handle.result(timeout=0)
        assert [len(vector) for vector in found] == [8, 8]
        assert (await used_by(app.engine, handle.id)).total.more == {"texts": 2}
        standin.cue("wrong", body={"data": [{"embedding": [1.0]}], "usage": None})
        handle = await vectors.enqueue(["one"])
        await t.run()
        assert await handle.result(timeout=0) == [[1.0]]
        standin.cue("wrong", body={"data": [{"embedding": []}]})
        handle = await vectors.enqueue(["one"])
        await t.run()
        assert error_of(await t.task(handle))["code"] == "network"


async def test_a_whole_answer_with_impossible_counts_is_an_answer(standin: StandIn) -> None:
    """Some servers do not stream; some count as nobody should."""
    model = Model("parrot", url=standin.url)
    usage = {"prompt_tokens": -3, "completion_tokens": 10**15, "cost": -1.0}
    choice = {"message": {"content": "All of it."}, "finish_reason": "stop"}
    standin.cue("wrong", body={"choices": [choice], "usage": usage, "model": "m" * 999})
    async with testing(asking(model)) as t:
        task = await Setting(standin, t, model).run()
        assert task.result == b'"All of it."'
        used = (await used_by(t.app.engine, task.id)).total
        assert (used.input_tokens, used.output_tokens, used.billionths) == (0, 10**12, 0)


@pytest.mark.parametrize("usage", [
    {"prompt_tokens": None, "completion_tokens": 4.0, "cost": "0.25"},
    {"prompt_tokens": "many", "completion_tokens": 4, "cost": None},
    {"prompt_tokens": True, "completion_tokens": 4, "cost": []},
])  # fmt: skip
async def test_counts_that_are_none_do_not_cost_the_answer(
    standin: StandIn, usage: dict[str, Any]
) -> None:
    model = Model("parrot", url=standin.url)
    choice = {"message": {"content": "All of it."}, "delta": None, "finish_reason": "stop"}
    standin.cue("wrong", body={"choices": [choice], "usage": usage})
    async with testing(asking(model)) as t:
        task = await Setting(standin, t, model).run()
        assert task.result == b'"All of it."'
        used = (await used_by(t.app.engine, task.id)).total
        assert (used.input_tokens, used.output_tokens, used.billionths) == (0, 4, 0)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ({"code": 429}, "rate_limit"),
        ({"code": "429"}, "rate_limit"),
        ({"code": "rate_limit_exceeded"}, "rate_limit"),
        ({"code": "503"}, "unavailable"),
        ({"code": "context_length_exceeded", "type": "invalid_request_error"}, "bad_request"),
        ({"type": "authentication_error"}, "unauthorized"),
        ({"type": "permission_error", "code": None}, "forbidden"),
        ({"type": "not_found_error"}, "not_found"),
        ({"type": "overloaded_error"}, "unavailable"),
        ({"code": None}, "unavailable"),
    ],
)
async def test_an_error_under_a_good_status_is_known_by_its_code(
    setting: Setting, error: dict[str, Any], code: str
) -> None:
    task = await setting.first_attempt(do="wrong", body={"error": {"message": "no", **error}})
    assert error_of(task)["code"] == code


NO_TEXT = b'{"error": {"message": "\xff\xfe"}}'
NESTED = b'{"error":' * 60_000
STREAM = "200 OK\r\ncontent-type: text/event-stream"


@pytest.mark.parametrize(
    ("head", "body", "code", "status"),
    [
        ("429 No\r\nretry-after: 7", NO_TEXT, "rate_limit", "throttled"),
        ("429 No\r\nretry-after: 7", NESTED, "rate_limit", "throttled"),
        ("503 No", NO_TEXT, "unavailable", "retrying"),
        ("400 No", NESTED, "bad_request", "dead"),
        (STREAM, b'data: {"choices": [{"delta": {"content": "\xff"}}]}\n\n', "network", "retrying"),
        (STREAM, b'data: {"error": ' + b"[" * 60_000 + b"\n\n", "network", "retrying"),
    ],
    ids=["429-text", "429-nested", "503-text", "400-nested", "chunk-text", "chunk-nested"],
)
async def test_what_cannot_be_read_does_not_hide_what_was_meant(
    head: str, body: bytes, code: str, status: str
) -> None:
    task = await asked_of(head, body)
    [attempt] = json.loads(task.attempts)
    assert (task.status, attempt["error"]["code"]) == (status, code)


async def test_a_byte_order_mark_does_not_cost_the_first_words() -> None:
    body = b"".join(
        b"data: %s\n\n" % json.dumps({"choices": [choice]}).encode()
        for choice in (
            {"delta": {"content": "All "}},
            {"delta": {"content": "of it."}, "finish_reason": "stop"},
        )
    )
    task = await asked_of(STREAM, BOM_UTF8 + body)
    assert task.result == b'"All of it."'


async def asked_of(head: str, body: bytes) -> Task:
    """What became of a task whose model is a server that answers with these bytes."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await reader.readuntil(b"\r\n\r\n")
        size = re.search(rb"content-length: (\d+)", asked)
        await reader.readexactly(int(size[1]) if size else 0)
        writer.write(f"HTTP/1.1 {head}\r\nconnection: close\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        model = Model("parrot", url=f"http://127.0.0.1:{port}/v1")
        async with testing(asking(model)) as t:
            [handle] = await t.app.enqueue([t.app.handlers["ask"].call("How are you?")])
            await t.run()
            return await t.task(handle)


async def test_an_answer_that_ends_in_an_error_is_none(setting: Setting) -> None:
    choice = {"message": {"content": "The half of"}, "finish_reason": "error"}
    task = await setting.first_attempt(do="wrong", body={"choices": [choice]})
    assert (task.status, error_of(task)["code"]) == ("retrying", "unavailable")


# the key and the address -------------------------------------------------------------------------


async def test_the_key_is_in_no_record_and_no_line_of_the_log(
    setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    task = await setting.first_attempt(do="error", status=401)
    assert task.status == "dead"
    assert KEY not in caplog.text
    assert KEY.encode() not in (task.error or b"")
    assert KEY not in repr(setting.model)
    said = setting.model._masked(f'{{"error": {{"message": "bad key {KEY}"}}}}'.encode())
    assert KEY not in str(refusal(401, {}, said, NOW))


def test_the_environment_says_which_model(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KEY", "BASE_URL", "MODEL"):
        monkeypatch.delenv(f"OPENROUTER_{'API_' if name == 'KEY' else ''}{name}", raising=False)
    assert Model.from_env() is None
    monkeypatch.setenv("OPENROUTER_API_KEY", KEY)
    model = Model.from_env()
    assert model is not None
    assert (model.url, model.models, model.limit.key) == (
        OPENROUTER, (DEFAULT_MODEL,), "llm:openrouter.ai",
    )  # fmt: skip
    monkeypatch.setenv("OPENROUTER_BASE_URL", "http://127.0.0.1:11434/v1/")
    monkeypatch.setenv("OPENROUTER_MODEL", "small, large")
    model = Model.from_env()
    assert model is not None
    assert (model.url, model.models) == ("http://127.0.0.1:11434/v1", ("small", "large"))


@pytest.mark.parametrize("url", ["openrouter.ai", "ftp://a.b", "https://me:secret@a.b/v1"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(BadInput, match="base of its API") as refused:
        Model(url=url)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("key", ["sk-…", "sk-1\r\nx: y"])
def test_a_key_that_is_none_is_refused_and_not_shown(key: str) -> None:
    with pytest.raises(BadInput) as refused:
        Model(key=key)
    assert "sk-" not in str(refused.value)


@pytest.mark.parametrize(
    ("headers", "rest_ms"),
    [
        ({}, 0),
        ({"x-ratelimit-remaining": "3", "x-ratelimit-reset": "60"}, 0),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "60"}, 60_000),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(NOW + 5_000)}, 5_000),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(NOW // 1_000 + 5)}, 5_000),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "2023-11-14T22:13:30Z"}, 10_000),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "6m0s"}, 360_000),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "20ms"}, 20),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "soon"}, 0),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "99999999"}, 3_600_000),
        ({"ratelimit": '"default";r=0;t=30'}, 30_000),
        ({"ratelimit": '"a";r=5;t=90, "b";r=0;t=3'}, 3_000),
    ],
)
def test_headers_say_how_long_to_rest(headers: dict[str, str], rest_ms: int) -> None:
    assert rest_asked(headers, NOW) == rest_ms


def test_headers_that_a_router_passes_on_count_too() -> None:
    body = {
        "error": {
            "message": "slow down",
            "metadata": {
                "headers": {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": NOW + 9_000}
            },
        }
    }
    assert refusal(429, {}, json.dumps(body).encode(), NOW).headers == {"retry-after": "9.0"}
