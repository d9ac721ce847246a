"""Text of strangers is shown, not obeyed."""

from __future__ import annotations

import pytest

from outlast.core.text import clean, safe_url


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\nb\tc", "a\\nb\\tc"),
        ("\u202eevil", "\\u202eevil"),
        ("ok \U0001f468\u200d\U0001f4bb", "ok \U0001f468\u200d\U0001f4bb"),
    ],
)
def test_control_characters_are_spelled_out(hostile: str, shown: str) -> None:
    assert clean(hostile) == shown


def test_several_lines_stay_lines_when_they_may() -> None:
    assert clean("a\nb\x07", lines=True) == "a\nb\\x07"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ada:secret@db/x", "postgresql://db/x"),
        ("sqlite:///jobs.db", "sqlite:///jobs.db"),
        ("nonsense", "nonsense"),
    ],
)
def test_passwords_are_not_shown(url: str, shown: str) -> None:
    assert safe_url(url) == shown
