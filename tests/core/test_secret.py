"""`Secret[...]`: what shows it, what stores it, where a schema says that secrets are."""

from __future__ import annotations

import copy
import json
import pickle
from dataclasses import dataclass
from typing import Annotated

import msgspec
import pytest
from pydantic import BaseModel, Field

from outlast.core.codec import Signature, dumps
from outlast.core.errors import BadInput
from outlast.core.failures import classify
from outlast.core.secret import Mask, Secret, secret_paths

CANARY = "canary-4242"


@dataclass
class Login:
    user: str
    password: Secret[str]


class Vault(msgspec.Struct):
    login: Login
    pins: list[Secret[int]] = []
    note: Secret[str] | None = None


class Model(BaseModel):
    token: Secret[str]
    others: list[Model] = []


def handle(
    card: Secret[str],
    vault: Vault,
    model: Model,
    short: Secret[Annotated[str, Field(min_length=3)]] = Secret("never shown"),  # noqa: B008
) -> dict[str, Secret[str]]:
    return {"card": card}


SIGNATURE = Signature.of(handle)
CALL = (
    Secret(CANARY),
    Vault(Login("ada", Secret("pw-canary")), [Secret(1234)], Secret("note-canary")),
    Model(token=Secret("tok-canary"), others=[Model(token=Secret("deep-canary"))]),
)


def test_nothing_that_prints_it_shows_it() -> None:
    secret = Secret(CANARY)
    shown = [repr(secret), str(secret), f"{secret}", f"{secret:>20}", f"{secret!r}", "%s" % secret]  # noqa: UP031
    shown += [repr(CALL), Model(token=secret).model_dump_json(), dumps({"a": [secret]}).decode()]
    shown += [dumps(Model(token=secret)).decode(), repr(copy.deepcopy(CALL))]
    assert "canary" not in " ".join(shown)
    assert dumps(secret) == b'"***"'
    assert secret.reveal() == CANARY
    assert secret == Secret(CANARY) != Secret("other")
    assert len({secret, Secret(CANARY)}) == 1
    with pytest.raises(TypeError, match="reveal"):
        pickle.dumps(secret)


def test_a_call_stores_what_its_handler_reads() -> None:
    data = SIGNATURE.bind(*CALL)
    told = json.loads(data)
    assert told["card"] == CANARY
    assert told["vault"]["login"] == {"user": "ada", "password": "pw-canary"}
    assert told["vault"]["pins"] == [1234]
    assert told["model"]["others"] == [{"token": "deep-canary", "others": []}]
    read = SIGNATURE.decode(data)
    assert [read["card"], read["vault"], read["model"]] == list(CALL)
    assert read["short"].reveal() == "never shown"  # type: ignore[attr-defined]


def test_a_result_too() -> None:
    data = SIGNATURE.encode_result({"card": Secret(CANARY)})
    assert json.loads(data) == {"card": CANARY}
    assert SIGNATURE.decode_result(data) == {"card": Secret(CANARY)}


def test_a_plain_value_is_taken_for_a_secret() -> None:
    data = SIGNATURE.bind(CANARY, {"login": {"user": "a", "password": "b"}}, {"token": "c"})
    assert SIGNATURE.decode(data)["card"] == Secret(CANARY)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("card", [CANARY]),
        ("vault", {"login": {"user": "a", "password": [CANARY]}}),
        ("vault", {"login": {"user": "a", "password": "b"}, "pins": [CANARY]}),
        ("model", {"token": {CANARY: 1}}),
        ("short", "4"),
    ],
)
def test_what_does_not_fit_is_not_quoted(field: str, value: object) -> None:
    fine = {
        "card": "c",
        "vault": {"login": {"user": "a", "password": "b"}},
        "model": {"token": "t"},
    }
    with pytest.raises(BadInput, match="secret") as refused:
        SIGNATURE.decode(json.dumps({**fine, field: value}).encode())
    assert refused.value.field is not None
    assert refused.value.field.startswith(f"$.{field}")
    assert CANARY not in str(classify(refused.value))  # the traceback included


def test_a_schema_marks_it() -> None:
    properties = SIGNATURE.payload_schema()["properties"]
    assert isinstance(properties, dict)
    assert properties["card"] == {"type": "string", "writeOnly": True, "format": "password"}
    assert properties["short"]["minLength"] == 3
    assert "never shown" not in json.dumps(SIGNATURE.payload_schema())


def test_paths_are_read_from_the_schema() -> None:
    assert secret_paths(SIGNATURE.payload_schema()) == (
        ("card",),
        ("model", "**", "token"),
        ("short",),
        ("vault", "login", "password"),
        ("vault", "note"),
        ("vault", "pins", "*"),
    )
    assert secret_paths(SIGNATURE.result_schema()) == (("*",),)
    foreign = {"type": "object", "properties": {"pin": {"type": "string", "writeOnly": True}}}
    assert secret_paths(foreign) == (("pin",),)
    assert secret_paths({"type": "string"}) == ()


MASK = Mask([CANARY, 123456, 'with "quotes" & ümläuts', {"in": ["nested-one"]}, "abc", None, True])


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        (f"card {CANARY} refused", "card *** refused"),
        (f"({CANARY}{CANARY})", "(******)"),
        ("number 123456", "number ***"),
        (repr('with "quotes" & ümläuts'), "'***'"),
        (json.dumps('with "quotes" & ümläuts'), '"***"'),
        ("?q=with%20%22quotes%22%20%26%20%C3%BCml%C3%A4uts&b", "?q=***&b"),
        ("a nested-one here", "a *** here"),
        ("abc is too short to be taken out, and True is no secret", None),
    ],
)
def test_a_mask_takes_the_values_out_of_texts(text: str, masked: str | None) -> None:
    assert MASK.text(text) == (text if masked is None else masked)


def test_a_masked_document_is_still_json() -> None:
    data = json.dumps({CANARY: [123456, 1234567, {"a": f"x{CANARY}"}], "n": None}).encode()
    assert json.loads(MASK.data(data)) == {"***": ["***", 1234567, {"a": "x***"}], "n": None}


def test_a_masked_failure_keeps_its_kind() -> None:
    failure = classify(ValueError(f"no {CANARY}"))
    masked = MASK.failure(failure)
    assert (masked.message, masked.code, masked.type) == ("no ***", failure.code, "ValueError")
    assert masked.traceback is not None
    assert CANARY not in masked.traceback
