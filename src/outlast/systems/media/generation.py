"""`media_generation`: a picture is ordered, followed, downloaded and kept, whoever is watching.

    app = Outlast(content="content")
    providers = Providers(Local(), Midjourney("https://mj.example.com", key))
    media_generation(app, providers)

Order, outcome and downloads are durable steps: a worker that dies in between costs neither a second
order nor a second download. An order that the provider failed is told as a failed attempt, and the
next attempt places another.
"""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any, Final

from msgspec import Struct

from outlast.app import Outlast
from outlast.content import content_id
from outlast.context import Context
from outlast.core.errors import BadInput, Permanent, Transient
from outlast.handler import Handler
from outlast.systems.media.providers import TXT2IMG, Order, Provider, Providers, State

TYPE: Final = "media_generation"
TIMEOUT: Final = "30m"
CONTENT: Final = "/api/v1/content/"


class Media(Struct, frozen=True, kw_only=True):
    """The result of a generation."""

    metadata_id: str
    """The task, which is the record of the generation: payload, attempts, result, for ever."""
    content_ids: list[str]
    urls: list[str]
    provider: str
    response: dict[str, Any]
    """What the provider said at the end."""


def media_generation(app: Outlast, providers: Providers) -> Handler[..., Media]:
    """The type on this app, with these providers."""
    if app.content is None:
        raise BadInput("Media need a place: Outlast(content='folder'), or OUTLAST_CONTENT.")

    @app.task(
        name=TYPE,
        timeout=TIMEOUT,
        limits=providers.limits_for,
        search=("workflow_run_id", "provider"),
    )
    async def generate(
        ctx: Context,
        provider: str,
        prompt: str,
        action_type: str = TXT2IMG,
        params: dict[str, Any] | None = None,
        source_data: dict[str, Any] | None = None,
        workflow_run_id: str | None = None,
        interaction_id: str | None = None,
        prompt_id: str | None = None,
    ) -> Media:
        """Pictures from a prompt."""
        order = Order(
            action=action_type,
            prompt=prompt,
            params=params or {},
            source=source_data or {},
            key=ctx.idempotency_key,
        )
        return await _generate(app, ctx, providers.get(provider), order)

    return generate


async def _generate(app: Outlast, ctx: Context, provider: Provider, order: Order) -> Media:
    state, n = await _made(ctx, provider, order)
    pieces = state.made or ()
    ids = []
    for place, piece in enumerate(pieces, 1):
        await ctx.progress(100, f"fetching {place} of {len(pieces)}")
        ids.append(await ctx.step(f"content {n}.{place}", _keep, app, ctx, provider, piece, place))
    return Media(
        metadata_id=ctx.task_id,
        content_ids=ids,
        urls=[f"{CONTENT}{id}" for id in ids],
        provider=provider.name,
        response=state.response,
    )


async def _made(ctx: Context, provider: Provider, order: Order) -> tuple[State, int]:
    """The outcome of the first order that did not fail, and which one that was."""
    for n in count(1):
        job = await ctx.step(f"order {n}", provider.submit, order, ctx.now)
        seen_now = False

        async def follow(job: str) -> State:
            nonlocal seen_now
            seen_now = True
            return await _follow(ctx, provider, job)

        state = await ctx.step(f"outcome {n}", follow, job)
        if state.failure is None:
            return state, n
        if seen_now:
            kind = Permanent if state.is_final else Transient
            raise kind(f"{provider.name} failed: {state.failure}", details=state.response)
        # It failed in an attempt before this one, which came here to order anew.
    raise AssertionError("count() has no end")


async def _follow(ctx: Context, provider: Provider, job: str) -> State:
    """Ask how far it is until it is over. The slot is held meanwhile: the provider is at work."""
    while True:
        state = await provider.poll(job, ctx.now)
        if state.made is not None or state.failure is not None:
            return state
        await ctx.progress(state.percent, state.message)
        await asyncio.sleep(provider.pace_s)


async def _keep(app: Outlast, ctx: Context, provider: Provider, piece: str, place: int) -> str:
    """Download one piece. Its id is the same in every attempt: a second one replaces a first."""
    assert app.content is not None  # noqa: S101  # the type was registered with one
    id = content_id(ctx.created_at, ctx.task_id, f"{place}")
    kept = await app.content.keep(id, ctx.task_id, provider.fetch(piece))
    return kept.id
