"""Credentials that addresses and headers in a text carry."""

from __future__ import annotations

import pytest

from outlast.core.failures import classify
from outlast.core.text import safe_url, scrub, without_query


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("for url 'https://ada:pw@api.example/x'", "for url 'https://***@api.example/x'"),
        ("GET https://a.example/?api_key=abc&page=2", "GET https://a.example/?api_key=***&page=2"),
        ("…/x?page=2&X-Amz-Signature=abc'", "…/x?page=2&X-Amz-Signature=***'"),
        ("Authorization: Bearer abcdefgh.ijkl", "Authorization: Bearer ***"),
        ("ssh://git@example.org and a@b.example", None),
        ("?key=2 is hidden, ?monkey=2 not", "?key=*** is hidden, ?monkey=2 not"),
    ],
)  # fmt: skip
def test_credentials_are_taken_out(text: str, shown: str | None) -> None:
    assert scrub(text) == (text if shown is None else shown)


def test_the_query_of_a_logged_address_says_nothing() -> None:
    assert (
        without_query('"GET /events?ticket=abc&q=ada" 200') == '"GET /events?ticket=***&q=***" 200'
    )


def test_an_engine_url_may_have_its_password_in_the_query() -> None:
    assert (
        safe_url("postgresql://db/app?user=u&password=pw")
        == "postgresql://db/app?user=u&password=***"
    )


def test_errors_are_stored_without_them() -> None:
    failure = classify(ValueError("401 for https://u:pw@h/?token=abcdef"))
    assert failure.message == "401 for https://***@h/?token=***"
    assert failure.traceback is not None
    assert "abcdef" not in failure.traceback
