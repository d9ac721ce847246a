"""Requests that are no HTTP, or have no end: refused before they reach the API, as problems too."""

from __future__ import annotations

from typing import Final

from uvicorn.protocols.http.auto import AutoHTTPProtocol

from outlast.http.problems import problem

# URL and headers together; h11 has a bound of its own, httptools has none.
MAX_HEAD: Final = 65_536

HEADER: Final = 32  # what one costs besides its text, as HTTP/2 counts

_REFUSAL: Final = problem(400, "This is not HTTP, or its headers are too long.", code="bad_http")
_ANSWER: Final = b"HTTP/1.1 400 Bad Request\r\n%b\r\nconnection: close\r\n\r\n%b" % (
    b"\r\n".join(name + b": " + value for name, value in _REFUSAL.raw_headers),
    bytes(_REFUSAL.body),
)


class Wire(AutoHTTPProtocol):  # type: ignore[misc, valid-type]  # the faster one that is there
    """uvicorn's protocol with a bound on the head of a request."""

    def on_message_begin(self) -> None:
        self._head = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._grow(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._grow(len(name) + len(value) + HEADER)
        super().on_header(name, value)

    def send_400_response(self, msg: str) -> None:
        self.transport.write(_ANSWER)
        self.transport.close()

    def _grow(self, size: int) -> None:
        self._head += size
        if self._head > MAX_HEAD:
            # Whatever a callback raises ends the parsing, and is answered with 400.
            raise ValueError("The head of the request is too long.")
