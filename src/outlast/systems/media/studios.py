"""Providers over HTTP: those that are asked like Midjourney's proxies, and like Leonardo.

Whatever they refuse is classified like what models' providers refuse (`refusals.py`). What they
made is fetched from them, or from the public internet: an address inside of one's own network is
refused, whoever names it.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final
from urllib.parse import quote, urlsplit

import msgspec

from outlast.core.errors import BadInput, Permanent
from outlast.core.states import Ms
from outlast.systems.media.providers import (
    MAX_COUNT,
    TXT2IMG,
    Order,
    Preview,
    Provider,
    State,
    whole,
)
from outlast.systems.refusals import NetworkTimeout, ProtocolError, refusal
from outlast.webhooks import resolve

TIMEOUT_S: Final = 30.0
MAX_ANSWER: Final = 4 * 1_048_576
MAX_SIDE: Final = 1_536
MAX_ADDRESS: Final = 8_192
REFUSED: Final = (4, 24)
"""With these codes Midjourney's proxies refuse an order that is not valid, and a banned prompt."""


class _Studio:
    """What both have in common: a base address, a key, and how they are talked to."""

    pace_s: float
    concurrency: int

    def __init__(self, url: str, key: str, *, concurrency: int, pace_s: float) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("https", "http") or not parts.hostname or parts.username:
            raise BadInput("url: the base of the provider's API, as in https://api.example.com.")
        key = key.strip()
        if not (key.isascii() and key.isprintable()):  # as a header it would be quoted in an error
            raise BadInput("The provider's key has characters that no key has: copy it anew.")
        self._url, self._key = url.rstrip("/"), key
        self._origin = (parts.scheme, parts.netloc)
        self.concurrency, self.pace_s = concurrency, pace_s

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._url}>"

    async def _call(
        self, method: str, path: str, now: Ms, headers: Mapping[str, str], body: object = None
    ) -> dict[str, Any]:
        import httpx2

        said = b""
        try:
            async with (
                httpx2.AsyncClient(trust_env=False, timeout=TIMEOUT_S) as http,
                http.stream(method, self._url + path, headers=headers, json=body) as reply,
            ):
                async for piece in reply.aiter_bytes():
                    said += piece
                    if len(said) > MAX_ANSWER:
                        raise ProtocolError(f"{self._url}{path} answers without end.")
        except httpx2.TimeoutException as error:
            raise NetworkTimeout(f"{self._url} did not answer in time.") from error
        if not 200 <= reply.status_code < 300:
            raise refusal(reply.status_code, dict(reply.headers), self._masked(said), now)
        try:
            told = msgspec.json.decode(said)
        except (ValueError, RecursionError) as error:  # also no UTF-8, or nested without end
            raise ProtocolError(f"{self._url}{path} answered what is no JSON.") from error
        if not isinstance(told, dict):
            raise ProtocolError(f"{self._url}{path} answered {type(told).__name__}, not an object.")
        return told

    def _masked(self, said: bytes) -> bytes:
        """A provider that quotes the key it was given does not get it into a record."""
        return said.replace(self._key.encode(), b"***") if self._key else said

    async def fetch(self, piece: str) -> AsyncGenerator[bytes, None]:
        import httpx2

        parts = urlsplit(piece)
        target, headers, extensions = httpx2.URL(piece), {}, {}
        if (parts.scheme, parts.netloc) != self._origin:
            # To the very address that was looked at: the name may point elsewhere a moment later.
            address = await resolve(parts)
            pinned = f"[{address}]" if address.version == 6 else str(address)
            headers = {"host": parts.netloc}
            extensions = {"sni_hostname": parts.hostname or ""}
            target = target.copy_with(host=pinned)
        async with (
            httpx2.AsyncClient(trust_env=False, timeout=TIMEOUT_S, follow_redirects=False) as http,
            http.stream("GET", target, headers=headers, extensions=extensions) as reply,
        ):
            if reply.status_code != 200:
                raise refusal(reply.status_code, dict(reply.headers), b'"no picture"', 0)
            async for data in reply.aiter_bytes():
                yield data


class Midjourney(_Studio):
    """As the proxies of Midjourney are asked: submit an imagine, fetch its task."""

    name: Final = "midjourney"
    actions: Final = (TXT2IMG,)

    def __init__(
        self, url: str, key: str = "", *, concurrency: int = 1, pace_s: float = 3.0
    ) -> None:
        super().__init__(url, key, concurrency=concurrency, pace_s=pace_s)

    def preview(self, order: Order) -> Preview:
        return Preview(
            provider=self.name, action=order.action, count=1, width=2_048, height=2_048, seconds=60
        )

    async def submit(self, order: Order, now: Ms) -> str:
        body = {**order.params, "prompt": order.prompt, "state": order.key}
        told = await self._call("POST", "/mj/submit/imagine", now, self._headers(), body)
        # 1 is taken, 22 is taken and waits, 21 is there already; others are refusals.
        if told.get("code") not in (1, 21, 22) or not told.get("result"):
            kind = Permanent if told.get("code") in REFUSED else ProtocolError
            raise kind(f"{self.name} took no order: {told.get('description', told)}")
        return str(told["result"])

    async def poll(self, job: str, now: Ms) -> State:
        path = f"/mj/task/{quote(job, safe='')}/fetch"
        told = await self._call("GET", path, now, self._headers())
        status = told.get("status")
        percent = _percent(told.get("progress"))
        if status == "SUCCESS":
            return State(percent=100, made=_made(self.name, [told.get("imageUrl")]), response=told)
        if status == "FAILURE":
            why = str(told.get("failReason") or "no reason given")
            return State(failure=why, is_final="banned" in why.lower(), response=told)
        return State(percent=percent, message=str(status or "").replace("_", " ").lower())

    def _headers(self) -> dict[str, str]:
        return {"mj-api-secret": self._key} if self._key else {}


class Leonardo(_Studio):
    """As Leonardo is asked: create a generation, read it until it is complete."""

    name: Final = "leonardo"
    actions: Final = (TXT2IMG,)

    def __init__(self, url: str, key: str, *, concurrency: int = 3, pace_s: float = 2.0) -> None:
        super().__init__(url, key, concurrency=concurrency, pace_s=pace_s)

    def preview(self, order: Order) -> Preview:
        return Preview(
            provider=self.name,
            action=order.action,
            count=whole(order.params, "num_images", 1, MAX_COUNT),
            width=whole(order.params, "width", 1_024, MAX_SIDE),
            height=whole(order.params, "height", 768, MAX_SIDE),
            seconds=20,
        )

    async def submit(self, order: Order, now: Ms) -> str:
        seen = self.preview(order)
        body = {
            **order.params,
            "prompt": order.prompt,
            "num_images": seen.count,
            "width": seen.width,
            "height": seen.height,
        }
        path = "/api/rest/v1/generations"
        told = await self._call("POST", path, now, self._headers(), body)
        job = told.get("sdGenerationJob")
        if not isinstance(job, dict) or not job.get("generationId"):
            raise ProtocolError(f"{self.name} named no generation.")
        return str(job["generationId"])

    async def poll(self, job: str, now: Ms) -> State:
        path = f"/api/rest/v1/generations/{quote(job, safe='')}"
        told = await self._call("GET", path, now, self._headers())
        found = told.get("generations_by_pk")
        if not isinstance(found, dict):
            raise ProtocolError(f"{self.name} knows no generation {job}.")
        if found.get("status") == "COMPLETE":
            images = found.get("generated_images")
            listed = images if isinstance(images, list) else []
            urls = [image.get("url") if isinstance(image, dict) else None for image in listed]
            return State(percent=100, made=_made(self.name, urls), response=found)
        if found.get("status") == "FAILED":
            return State(failure="the generation failed", response=found)
        return State(message="waiting" if found.get("status") == "PENDING" else "at work")

    def _headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self._key}", "accept": "application/json"}


def _made(name: str, urls: list[Any]) -> tuple[str, ...]:
    """Where the pictures are. An outcome that does not say that is none: it is asked for again."""
    if not urls or not all(map(_is_address, urls)):
        raise ProtocolError(f"{name} says that it is done, and not where the pictures are.")
    return tuple(urls)


def _is_address(told: object) -> bool:
    import httpx2

    if not isinstance(told, str) or len(told) > MAX_ADDRESS:
        return False
    try:
        parts = urlsplit(told)
        httpx2.URL(told)  # which is what asks
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except (ValueError, httpx2.InvalidURL):  # brackets that are not closed, a port that is none
        return False


def _percent(told: object) -> float:
    """ "45%", or whatever else is said of progress."""
    found = re.fullmatch(r"([0-9]{1,3}(\.[0-9]+)?)%?", str(told))
    return min(float(found[1]), 100.0) if found else 0.0


def _are_providers(midjourney: Midjourney, leonardo: Leonardo) -> tuple[Provider, ...]:
    """For the type checker."""
    return midjourney, leonardo
