"""Batches with edges: any order is fine, a circle is not."""

from __future__ import annotations

import pytest

from outlast.core.errors import BadInput
from outlast.core.graph import check_acyclic
from outlast.core.model import NewTask


def batch(**edges: str) -> list[NewTask]:
    return [NewTask(id=name, type="t", after=tuple(ups)) for name, ups in edges.items()]


@pytest.mark.parametrize(
    "edges",
    [{}, {"a": ""}, {"b": "a", "a": ""}, {"a": "", "b": "a", "c": "ab", "d": "bc"}, {"a": "z"}],
)
def test_graphs_without_a_circle_pass(edges: dict[str, str]) -> None:
    check_acyclic(batch(**edges))


@pytest.mark.parametrize(
    "edges", [{"a": "a"}, {"a": "b", "b": "a"}, {"x": "", "a": "xc", "b": "a", "c": "b"}]
)
def test_a_circle_is_named(edges: dict[str, str]) -> None:
    with pytest.raises(BadInput, match="a waits for itself"):
        check_acyclic(batch(**edges))


def test_a_long_chain_is_no_trouble() -> None:
    check_acyclic(
        [NewTask(id=f"{n}", type="t", after=(f"{n - 1}",) if n else ()) for n in range(20_000)]
    )
