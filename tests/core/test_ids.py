"""Ids sort by the time they were made, and are unique whoever makes them."""

import os
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from outlast.core import ids
from outlast.core.errors import BadInput
from outlast.core.ids import check_id, new_fence, new_id


def test_an_id_is_a_uuid7_in_canonical_text():
    parsed = uuid.UUID(new_id())
    assert parsed.version == 7
    assert parsed.variant == uuid.RFC_4122
    assert str(uuid.UUID(text := new_id())) == text


def test_an_id_carries_the_millisecond_it_was_made(monkeypatch):
    monkeypatch.setattr(ids, "_last", 0)
    monkeypatch.setattr(ids.time, "time_ns", lambda: 1_700_000_000_123_999_999)
    assert uuid.UUID(new_id()).int >> 80 == 1_700_000_000_123


def test_ids_grow_strictly():
    made = [new_id() for _ in range(20_000)]
    assert made == sorted(set(made))


def test_ids_grow_when_the_clock_stands_or_goes_back(monkeypatch):
    before = new_id()
    monkeypatch.setattr(ids.time, "time_ns", lambda: 1_000_000_000)
    made = [before] + [new_id() for _ in range(10_000)]
    assert made == sorted(set(made))


def test_ids_of_many_threads_are_distinct_and_grow_in_each():
    start = threading.Barrier(4)

    def make(_: int) -> list[str]:
        start.wait()
        return [new_id() for _ in range(5_000)]

    with ThreadPoolExecutor(4) as pool:
        lists = list(pool.map(make, range(4)))
    assert all(made == sorted(made) for made in lists)
    assert len({one for made in lists for one in made}) == 20_000


def test_forked_children_make_other_ids(monkeypatch):
    new_id()
    monkeypatch.setattr(ids.time, "time_ns", lambda: 1_000_000_000)  # so that only noise differs
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, new_id().encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 100).decode()[18:] != new_id()[18:]


@pytest.mark.parametrize(
    "text",
    [
        "550E8400-E29B-41D4-A716-446655440000",
        "550e8400-e29b-41d4-a716-446655440000",
        "550e8400e29b41d4a716446655440000",
    ],
)
def test_any_uuid_is_normalised(text):
    assert check_id(text) == "550e8400-e29b-41d4-a716-446655440000"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "42",
        "550e8400-e29b-41d4-a716-44665544000",
        "550e8400-e29b-41d4-a716-446655440000\n",
        "{550e8400-e29b-41d4-a716-446655440000}",
        "550e8400-e29b-41d4-a716446655440000",
        "zzzzzzzz-e29b-41d4-a716-446655440000",
        None,
        7,
    ],
)
def test_anything_else_is_refused(text):
    with pytest.raises(BadInput, match="is not a task id") as caught:
        check_id(text)
    assert caught.value.field == "id"


def test_fences_are_positive_63_bit_and_do_not_repeat():
    fences = [new_fence() for _ in range(10_000)]
    assert all(0 < fence < 2**63 for fence in fences)
    assert len(set(fences)) == len(fences)
    assert max(fences) > 2**61


def test_a_fence_is_never_zero(monkeypatch):
    monkeypatch.setattr(ids, "urandom", lambda n: bytes(n))
    assert new_fence() == 1
