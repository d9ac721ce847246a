"""The query parameters of a list of tasks."""

import pytest

from outlast import BadInput
from outlast.core.model import TaskQuery, Term
from outlast.query import parse_query


def test_parameters_become_terms() -> None:
    params = {"status": "dead, cancelled", "type": "a", "q": "x,y", "limit": "20", "cursor": "c",
              "tag": "", "queue": None}  # fmt: skip
    assert parse_query(params) == TaskQuery(
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
    ],
)
def test_what_is_wrong_is_said(params: dict[str, str | int | None], words: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_query(params)
    assert words in str(caught.value)
    assert caught.value.field in params
