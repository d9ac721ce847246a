"""Encryption of values: keys, envelopes, what opens them and what does not."""

from __future__ import annotations

import base64
import json

import pytest

from outlast.core.errors import BadInput, KeyMissing
from outlast.core.seal import Seal, bare, is_sealed, new_key

OLD, NEW = new_key(), new_key()
VALUE = b'{"card":"canary"}'


def test_what_is_sealed_opens_and_shows_nothing() -> None:
    seal = Seal.of(NEW)
    data = seal.close(VALUE, "t1", "payload")
    assert is_sealed(data)
    assert list(json.loads(data)) == ["$enc"]
    assert b"canary" not in base64.b64decode(json.loads(data)["$enc"].partition(":")[2])
    assert seal.open(data, "t1", "payload") == VALUE
    assert data != seal.close(VALUE, "t1", "payload")


@pytest.mark.parametrize(("owner", "field"), [("t2", "payload"), ("t1", "result")])
def test_elsewhere_it_does_not_open(owner: str, field: str) -> None:
    seal = Seal.of(NEW)
    with pytest.raises(KeyMissing, match="does not open"):
        seal.open(seal.close(VALUE, "t1", "payload"), owner, field)


def test_a_changed_envelope_does_not_open() -> None:
    seal = Seal.of(NEW)
    data = bytearray(seal.close(VALUE, "t1", "payload"))
    place = len(data) - 10
    data[place] = ord("A") if data[place] != ord("A") else ord("B")
    with pytest.raises(KeyMissing, match="changed"):
        seal.open(bytes(data), "t1", "payload")


def test_rotation_the_first_key_seals_and_all_open() -> None:
    before = Seal.of(OLD).close(VALUE, "t1", "payload")
    rotated = Seal.of(f"{NEW}, {OLD}")
    assert rotated.open(before, "t1", "payload") == VALUE
    after = rotated.close(VALUE, "t1", "payload")
    assert Seal.of([NEW]).open(after, "t1", "payload") == VALUE
    with pytest.raises(KeyMissing, match=OLD.partition(":")[0]):
        Seal.of(NEW).open(before, "t1", "payload")


def test_without_keys_it_says_which_one_is_missing() -> None:
    data = Seal.of(NEW).close(VALUE, "t1", "payload")
    name = NEW.partition(":")[0]
    with pytest.raises(KeyMissing, match=f"{name}.*OUTLAST_ENCRYPTION_KEYS"):
        Seal().open(data, "t1", "payload")
    assert json.loads(bare(data)) == {"$enc": name}
    assert is_sealed(bare(data))


@pytest.mark.parametrize("data", [VALUE, b'{"$enc":5}', b'{"$enc":"a:b","c":1}', b'"$enc"', b""])
def test_what_was_stored_before_there_were_keys_is_read_as_it_is(data: bytes) -> None:
    assert not is_sealed(data)
    assert Seal.of(NEW).open(data, "t1", "payload") == data


@pytest.mark.parametrize("form", [base64.b64encode, base64.urlsafe_b64encode])
def test_a_key_may_go_without_an_id(form: object) -> None:
    secret = bytes(range(223, 255))
    text: str = form(secret).decode()  # type: ignore[operator]
    [(name, read)] = Seal.of(text.rstrip("=")).keys
    assert read == secret
    assert Seal.of(f"{name}:{text}") == Seal.of(text)


@pytest.mark.parametrize(
    "given",
    ["short", "a:b", "bad id:" + NEW.partition(":")[2], NEW[:-4]],
    ids=["short", "named", "bad id", "cut"],
)
def test_a_bad_key_is_refused_and_not_quoted(given: str) -> None:
    with pytest.raises(BadInput, match="entry 2") as refused:
        Seal.of(f"{NEW},{given}")
    assert given not in str(refused.value)


def test_one_id_for_two_keys_is_refused() -> None:
    with pytest.raises(BadInput, match="'a' is there twice"):
        Seal.of([f"a:{OLD.partition(':')[2]}", f"a:{NEW.partition(':')[2]}"])


def test_keys_are_not_shown() -> None:
    assert repr(Seal.of([NEW, OLD])) == f"Seal({NEW.partition(':')[0]}, {OLD.partition(':')[0]})"
