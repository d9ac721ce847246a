"""The query parameters of a list of tasks, and the filter language."""

from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast import BadInput
from outlast.core.model import TaskQuery, Term
from outlast.engine import Engine, connect
from outlast.filters import parse_filter
from outlast.query import parse_query

NOW = 1_800_000_000_000
HOUR = 3_600_000


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    engine = connect("memory://")
    await engine.open()
    yield engine
    await engine.close()


async def test_parameters_become_terms(engine: Engine) -> None:
    params = {"status": "dead, cancelled", "type": "a", "q": "x,y", "limit": "20", "cursor": "c",
              "tag": "", "queue": None}  # fmt: skip
    assert await parse_query(engine, params) == TaskQuery(
        terms=(Term("status", ("dead", "cancelled")), Term("type", ("a",)), Term("text", ("x,y",))),
        limit=20,
        cursor="c",
    )


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"status": "failed"}, "Statuses are: ready, scheduled"),
        ({"status": "deed"}, "did you mean 'dead'?"),
        ({"stauts": "dead"}, "did you mean 'status'?"),
        ({"limit": "0"}, "from 1 to 500"),
        ({"limit": "many"}, "from 1 to 500"),
        ({"limit": 501}, "from 1 to 500"),
        ({"q": "qeue:a"}, "did you mean 'queue'?"),
    ],
)
async def test_what_is_wrong_is_said(
    engine: Engine, params: dict[str, str | int | None], words: str
) -> None:
    with pytest.raises(BadInput) as caught:
        await parse_query(engine, params)
    assert words in str(caught.value)
    assert caught.value.field in params


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("", []),
        ("type:summarize", [Term("type", ("summarize",))]),
        ("status:dead,cancelled", [Term("status", ("dead", "cancelled"))]),
        ("-queue:bulk", [Term("queue", ("bulk",), negated=True)]),
        ("payload.user:ada", [Term("payload.user", ("ada",))]),
        ("payload.user.name:ada", [Term("payload.user.name", ("ada",))]),
        ("attr.user:ada", [Term("attr.user", ("ada",))]),
        ("session:s1 user:u", [Term("session_id", ("s1",)), Term("user_id", ("u",))]),
        ('tag:"a b","c,d"', [Term("tag", ("a b", "c,d"))]),
        (r'tag:"say \"no\""', [Term("tag", ('say "no"',))]),
        ('"some text"', [Term("text", ("some text",))]),
        ("some -other", [Term("text", ("some",)), Term("text", ("other",), negated=True)]),
        ("age>1h", [Term("created_at", (NOW - HOUR,), "<")]),
        ("age<1h", [Term("created_at", (NOW - HOUR,), ">")]),
        ("ended<10m", [Term("completed_at", (NOW - HOUR // 6,), ">")]),
        ("created>2026-11-01", [Term("created_at", (1_793_491_200_000,), ">")]),
        ("ended<2026-11-01T00:00:00Z", [Term("completed_at", (1_793_491_200_000,), "<")]),
        ("-age>1h", [Term("created_at", (NOW - HOUR,), "<", True)]),
        ("priority:0", [Term("priority", (0,))]),
        ("priority:high,7", [Term("priority", (1, 7))]),
        ("  status:dead   type:a ", [Term("status", ("dead",)), Term("type", ("a",))]),
    ],
)  # fmt: skip
def test_a_filter_becomes_terms(text: str, terms: list[Term]) -> None:
    assert list(parse_filter(text, NOW)) == terms


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("status:deed", "did you mean 'dead'?"),
        ("age:1h", "write age>1h"),
        ("created:2026-11-01", "write created>2026-11-01"),
        ("colour:red", "Filters are: age, ahead_of, created"),
        ("age>soon", "soon"),
        ("type>a", "only age, created and ended"),
        ("age>1h,2h", "one value"),
        ("created>1h", "give a moment"),
        ('"open', "not readable at"),
        ("tag:", "not readable at"),
        ("priority:urgent", "critical, high, normal, low or a number"),
        ("priority:99999999999999999999", "0 to 32767"),
        ("x" * 2_001, "2000 characters"),
        ("a " * 21, "20 parts"),
    ],
)
def test_what_is_wrong_with_a_filter_is_said(text: str, words: str) -> None:
    with pytest.raises(BadInput, match=words) as caught:
        parse_filter(text, NOW)
    assert caught.value.field in ("q", "status", None)


@given(st.text(alphabet='ab:,-"\\<>= .1h', max_size=60))
def test_no_filter_breaks_the_parser(text: str) -> None:
    try:
        terms = parse_filter(text, NOW)
    except BadInput:
        return
    assert all(term.values for term in terms)


@given(st.text(min_size=1, max_size=40))
def test_any_value_can_be_quoted(text: str) -> None:
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    assert parse_filter(f'tag:"{quoted}"', NOW) == (Term("tag", (text,)),)
