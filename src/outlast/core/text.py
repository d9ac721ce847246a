"""Text from outside, made safe to show: in terminals, in log lines, in error messages."""

from __future__ import annotations

import re
from typing import Final

# What could move the cursor, colour the screen or turn the reading direction: C0 and C1 controls,
# line and paragraph separators, bidirectional marks, lone surrogates. Joiners of emoji stay.
_HOSTILE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def clean(text: str, *, lines: bool = False) -> str:
    """Text that does nothing to a terminal but show; with `lines` it may have several."""
    safe = _HOSTILE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
    return safe if lines else safe.replace("\n", "\\n").replace("\t", "\\t")


# What addresses and headers in a text give away: `user:password@`, tokens in a query, credentials.
_USERINFO: Final = re.compile(r"(?<=://)[^\s/:@'\"]*:[^\s/@'\"]+@")
_TOKEN: Final = re.compile(
    r"([?&](?:[\w.-]*(?:token|apikey|secret|password|passwd|signature|ticket|credential)s?"
    r"|(?:[\w.-]*[_.-])?key|sig|auth)=)"
    r"[^&\s'\"#<>)]+",
    re.IGNORECASE,
)
_HEADER: Final = re.compile(r"\b(Bearer|Basic)(\s+)[A-Za-z0-9+/._~=-]{8,}")
_QUERY: Final = re.compile(r"([?&][^=&\s]*)=[^&\s'\"]+")


def scrub(text: str) -> str:
    """A text without the credentials that addresses and headers in it carry."""
    text = _USERINFO.sub("***@", text)
    return _HEADER.sub(r"\1\2***", _TOKEN.sub(r"\1***", text))


def without_query(text: str) -> str:
    """A text with an address, without what its query says."""
    return _QUERY.sub(r"\1=***", scrub(text))


def safe_url(url: str) -> str:
    """An engine's URL without user and password: messages end up in logs."""
    head, mark, rest = url.partition("://")
    if not mark and "@" in url:  # `postgresql:/user:password@host`, with a slash too few
        head, mark, rest = url.partition(":")
    return scrub(f"{head}{mark}{rest.rpartition('@')[2]}") if mark else url[:80]
