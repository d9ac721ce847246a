"""What people are not shown: fields by name and pattern, and the secrets of a type."""

from __future__ import annotations

import json

import pytest

from outlast.core.errors import BadInput
from outlast.core.redact import REDACTED, Hidden, Rules, redacted, restored

DEFAULT = Rules(REDACTED)


def shown(value: object, rules: Rules = DEFAULT, *paths: tuple[str, ...]) -> object:
    return json.loads(redacted(json.dumps(value).encode(), rules, paths))


@pytest.mark.parametrize(
    "name",
    [
        "password",
        "Password",
        "db_password",
        "X-Api-Key",
        "API_KEY",
        "api-key",
        "apiKey",
        "Authorization",
        "set-cookie",
    ],
)
def test_telling_names_are_hidden_however_they_are_written(name: str) -> None:
    assert shown({"a": [{name: "x", "b": 1}]}) == {"a": [{name: "***", "b": 1}]}


def test_what_only_sounds_like_it_is_shown() -> None:
    value = {"token": "Hel", "tokens": 5, "passwords": 2, "text": '"password": "in a text"'}
    assert shown(value) == value


def test_whole_things_are_hidden_and_nothing_stays_nothing() -> None:
    assert shown({"credentials": {"user": "a"}, "secret": [1], "password": None}) == {
        "credentials": "***",
        "secret": "***",
        "password": None,
    }


def test_a_pattern_is_the_end_of_a_path() -> None:
    rules = Rules(["*.token", "user.*_id", "x*"])
    value = {
        "token": 1,
        "a": {"token": 2},
        "user": {"tax_id": 3, "name": 4},
        "xyz": 5,
        "b": [{"token": 6}],
    }
    assert shown(value, rules) == {
        "token": 1,
        "a": {"token": "***"},
        "user": {"tax_id": "***", "name": 4},
        "xyz": "***",
        "b": [{"token": "***"}],
    }


def test_names_hidden_behind_escapes_are_found() -> None:
    data = rb'{"pass\u0077ord": "x"}'
    assert json.loads(redacted(data, DEFAULT)) == {"password": "***"}


def test_a_document_without_such_names_is_not_even_read() -> None:
    data = b'{"not": json, "at": "all"}'
    assert redacted(data, DEFAULT) is data


def test_secrets_of_a_type_are_hidden_by_their_place() -> None:
    value = {"a": 1, "b": [{"c": 2}, {"c": 3, "d": 4}], "e": {"f": {"g": {"h": 5}}}}
    paths = (("a",), ("b", "*", "c"), ("e", "**", "h"))
    assert shown(value, Rules(()), *paths) == {
        "a": "***",
        "b": [{"c": "***"}, {"c": "***", "d": 4}],
        "e": {"f": {"g": {"h": "***"}}},
    }


def test_a_whole_result_may_be_secret() -> None:
    assert shown("x", DEFAULT, ()) == "***"


@pytest.mark.parametrize("name", ["", "a..b", ".a", 7])
def test_a_rule_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(BadInput, match="redact"):
        Rules([name])


def test_what_comes_back_as_stars_stays_what_it_was() -> None:
    old = {"card": "4242", "n": 1, "list": [{"pin": 1}, {"pin": 2}]}
    new = {"card": "***", "n": 2, "list": [{"pin": "***"}, {"pin": 3}], "more": "***"}
    assert restored(new, old) == {
        "card": "4242",
        "n": 2,
        "list": [{"pin": 1}, {"pin": 3}],
        "more": "***",
    }


def test_a_mask_in_a_list_of_another_length_is_nobodys() -> None:
    """Taken for what it says, it would be what the task gets."""
    old = [{"pin": 1}, {"pin": 2}]
    for new in ([{"pin": "***"}], [*old, {"pin": ["***"]}], ["***"]):
        with pytest.raises(BadInput, match="had 2 items"):
            restored({"list": new}, {"list": old})
    said = [{"pin": 1}, {"said": "***really***"}, {"pin": 2}]
    assert restored(said, old) == said


def test_a_secret_covers_what_is_in_it() -> None:
    hidden = Hidden((("card",), ("user", "token")))
    assert [
        p for p in ("card", "card.number", "user", "user.token", "cards") if hidden.covers(p)
    ] == [
        "card",
        "card.number",
        "user.token",
    ]
