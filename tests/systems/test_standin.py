"""The stand-in for a model: what it says is repeatable, and it misbehaves when it is told to."""

from __future__ import annotations

import base64
import math
import struct
import subprocess
import sys

import httpx2
import pytest

from outlast import BadInput, Conflict
from outlast.systems.embed import embed
from outlast.systems.standin import StandIn

QUESTION = [{"role": "user", "content": "Who keeps a promise?"}]


async def ask(standin: StandIn, /, **more: object) -> httpx2.Response:
    body = {"model": "parrot", "messages": QUESTION, **more}
    async with httpx2.AsyncClient() as http:
        return await http.post(f"{standin.url}/chat/completions", json=body)


async def test_the_same_seed_says_the_same_streamed_or_whole() -> None:
    texts = []
    for seed, stream in ((7, False), (7, True), (8, False)):
        async with StandIn(seed=seed) as model:
            reply = await ask(model, stream=stream, stream_options={"include_usage": True})
            if not stream:
                texts.append(reply.json()["choices"][0]["message"]["content"])
                continue
            events = [line[6:] for line in reply.text.splitlines() if line]
            assert events[-1] == "[DONE]"
            chunks = [httpx2.Response(200, text=event).json() for event in events[:-1]]
            assert chunks[-1]["usage"]["total_tokens"] > 0
            assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
            texts.append("".join(c["choices"][0]["delta"].get("content", "") for c in chunks[:-1]))
    assert texts[0] == texts[1] != texts[2]
    assert texts[0].count(".") == 3


async def test_cues_are_used_up_in_order_and_may_be_for_one_model() -> None:
    async with StandIn(models=("parrot", "raven")) as model:
        model.cue("error", status=503, model="raven")
        model.cue("rate_limit", retry_after=2, times=2)
        assert [(await ask(model)).status_code for _ in range(3)] == [429, 429, 200]
        assert (await ask(model, model="raven")).status_code == 503
        assert (await ask(model, model="dodo")).status_code == 404
        got = [(asked.model, asked.got) for asked in model.asked]
        assert got == [("parrot", "rate_limit")] * 2 + [("parrot", "fine"), ("raven", "error")]


async def test_cues_come_over_http_too() -> None:
    async with StandIn() as model, httpx2.AsyncClient() as http:
        base = model.url.removesuffix("/v1")
        told = await http.post(f"{base}/_cue", json=[{"do": "wrong"}, {"do": "error"}])
        assert told.json() == {"waiting": 2}
        assert (await ask(model)).json() == {"hello": "I am no answer."}
        assert (await http.delete(f"{base}/_cue")).json() == {"waiting": 0}
        assert (await ask(model)).status_code == 200
        assert (await http.post(f"{base}/_cue", json={"do": "dance"})).status_code == 400
        assert (await http.get(f"{model.url}/models")).json()["data"][0]["id"] == "parrot"
        assert (await http.get(f"{base}/elsewhere")).status_code == 404
        with pytest.raises(BadInput, match="dance"):
            model.cue("dance")  # type: ignore[arg-type]


async def test_embeddings_are_deterministic_and_of_length_one() -> None:
    async with StandIn() as model, httpx2.AsyncClient() as http:
        body = {"model": "parrot", "input": ["a queue of tasks", "the sea"], "dimensions": 64}
        plain = (await http.post(f"{model.url}/embeddings", json=body)).json()["data"]
        body["encoding_format"] = "base64"
        coded = (await http.post(f"{model.url}/embeddings", json=body)).json()["data"]
    assert plain[0]["embedding"] == embed("a queue of tasks", 64)
    unpacked = struct.unpack("<64f", base64.b64decode(coded[0]["embedding"]))
    assert unpacked == pytest.approx(plain[0]["embedding"])
    assert math.hypot(*plain[1]["embedding"]) == pytest.approx(1)


def test_texts_that_share_words_lie_close() -> None:
    def near(one: str, other: str) -> float:
        return sum(a * b for a, b in zip(embed(one), embed(other), strict=True))

    one = "The worker takes a lease and runs the task"
    assert near(one, "A task is run by the worker with the lease") > 0.4
    assert near(one, "Pancakes need flour, milk and eggs") < 0.3
    assert embed("") == [1.0, *[0.0] * 255]


def test_it_runs_alone() -> None:
    command = [sys.executable, "-m", "outlast.systems.standin", "--pace", "0", "--models", "a,b"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            with httpx2.Client() as http:
                assert len(http.get(f"{url}/models").json()["data"]) == 2
        finally:
            process.kill()


async def test_it_has_no_address_before_it_runs() -> None:
    with pytest.raises(Conflict, match="async with"):
        _ = StandIn().url
