"""Providers of media: what the server asks them for a preview, and the worker for the work.

A provider takes an order, says how far it is, and hands over what it made; `Providers` is the
registry that servers and workers share. How many orders a provider takes at once is its own affair
(`concurrency`): the task type asks it for each payload, and the fleet holds to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final, Protocol

from msgspec import Struct

from outlast.core.errors import BadInput, suggest
from outlast.core.limits import Limit
from outlast.core.states import Ms
from outlast.systems.media.drawing import MAX_SIDE, draw

TXT2IMG: Final = "txt2img"
MAX_COUNT: Final = 8

Params = Mapping[str, Any]


class Order(Struct, frozen=True, kw_only=True):
    """What is to be made."""

    action: str
    prompt: str
    params: dict[str, Any] = {}
    source: dict[str, Any] = {}
    """What it is made from, for actions that change something."""
    key: str = ""
    """The same for every repetition of one order: for providers that tell repetitions apart."""


class Preview(Struct, frozen=True, kw_only=True):
    """What an order would give, for whoever draws the page that waits for it."""

    provider: str
    action: str
    count: int
    width: int
    height: int
    content_type: str = "image/png"
    seconds: float
    """How long it takes as a rule."""


class State(Struct, frozen=True, kw_only=True):
    """How far an order is: `made` when it is done, `failure` when it never will be."""

    percent: float = 0
    message: str = ""
    made: tuple[str, ...] | None = None
    """Where each piece is: an address, or what else `fetch` understands."""
    failure: str | None = None
    is_final: bool = False
    """Another order of the same would fail again: it breaks the provider's rules."""
    response: dict[str, Any] = {}


class Provider(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def concurrency(self) -> int: ...

    @property
    def pace_s(self) -> float:
        """How often it may be asked how far it is."""

    @property
    def actions(self) -> tuple[str, ...]: ...

    def preview(self, order: Order) -> Preview:
        """What it would give; `BadInput` when it cannot be asked for that."""

    async def submit(self, order: Order, now: Ms) -> str:
        """Hand it over; the provider's name for the order."""

    async def poll(self, job: str, now: Ms) -> State: ...

    def fetch(self, piece: str) -> AsyncGenerator[bytes, None]: ...


class Providers:
    """The registry."""

    def __init__(self, *providers: Provider) -> None:
        self._providers: dict[str, Provider] = {}
        for provider in providers:
            self.register(provider)

    def __iter__(self) -> Any:
        return iter(self._providers.values())

    def register(self, provider: Provider) -> None:
        if provider.name in self._providers:
            raise BadInput(f"There is a provider {provider.name!r} already.")
        self._providers[provider.name] = provider

    def get(self, name: object) -> Provider:
        found = self._providers.get(str(name))
        if found is None:
            hint = suggest(str(name), self._providers)
            known = ", ".join(self._providers)
            raise BadInput(
                f"There is no media provider {name!r}{hint or f'. There are: {known}.'}",
                field="provider",
            )
        return found

    def get_preview_info(
        self, provider: str, action_type: str = TXT2IMG, params: Params | None = None
    ) -> Preview:
        """What an order would give, without asking anybody."""
        order = Order(action=action_type, prompt="", params=dict(params or {}))
        return self.preview(provider, order)

    def preview(self, provider: object, order: Order) -> Preview:
        found = self.get(provider)
        if order.action not in found.actions:
            raise BadInput(
                f"{found.name} does no {order.action!r}. It does: {', '.join(found.actions)}.",
                field="action_type",
            )
        return found.preview(order)

    def limits_for(self, payload: Mapping[str, object]) -> list[Limit]:
        """The concurrency identifier of a payload and how many may run at once; also refuses, when
        it is enqueued, what no provider would do."""
        found = self.get(payload.get("provider"))
        params = payload.get("params")
        told = dict(params) if isinstance(params, Mapping) else {}
        self.preview(
            found.name, Order(action=str(payload.get("action_type")), prompt="", params=told)
        )
        return [Limit(f"media:{found.name}", slots=found.concurrency)]


def whole(params: Params, name: str, default: int, most: int) -> int:
    """A whole number among the parameters, within its bounds."""
    value = params.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise BadInput(
            f"params.{name}={value!r}: a whole number from 1 to {most} is needed.", field="params"
        )
    return value


class Local:
    """Draws by itself: real pictures, offline, in about `seconds`."""

    name: Final = "local"
    actions: Final = (TXT2IMG,)

    def __init__(self, *, concurrency: int = 2, seconds: float = 0.0, pace_s: float = 0.1) -> None:
        self.concurrency = concurrency
        self.pace_s = pace_s
        self._seconds = seconds

    def preview(self, order: Order) -> Preview:
        _seed(order)
        return Preview(
            provider=self.name,
            action=order.action,
            count=whole(order.params, "count", 1, MAX_COUNT),
            width=whole(order.params, "width", 384, MAX_SIDE),
            height=whole(order.params, "height", 256, MAX_SIDE),
            seconds=self._seconds,
        )

    async def submit(self, order: Order, now: Ms) -> str:
        seen = self.preview(order)
        return f"{now} {seen.count} {_seed(order)} {seen.width} {seen.height} {order.prompt}"

    async def poll(self, job: str, now: Ms) -> State:
        begun, count, rest = job.split(" ", 2)
        part = min((now - int(begun)) / (self._seconds * 1_000), 1.0) if self._seconds else 1.0
        if part < 1:
            return State(percent=round(100 * part), message="drawing")
        return State(percent=100, made=tuple(f"{n} {rest}" for n in range(int(count))))

    async def fetch(self, piece: str) -> AsyncGenerator[bytes, None]:
        n, seed, width, height, prompt = piece.split(" ", 4)
        yield await asyncio.to_thread(draw, prompt, int(seed) + int(n), int(width), int(height))


def _seed(order: Order) -> int:
    return whole(order.params, "seed", 1, 2**53)
