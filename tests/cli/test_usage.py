"""Usage, budgets and quotas from the command line."""

from __future__ import annotations

import pytest

APP = """
from outlast import Context, Outlast

app = Outlast()

@app.task
async def ask(ctx: Context, tokens: int) -> str:
    await ctx.usage(tokens=tokens, cost="0.5", model="small", pictures=2)
    return "said"
"""


@pytest.fixture
def asking(outlast):
    outlast.write_app(text=APP)
    with outlast.worker():
        for user, tokens in (("ada", 5), ("bob", 7)):
            ran = outlast("enqueue", "ask", f'{{"tokens": {tokens}}}', "--user", user, "--wait")
            assert ran.code == 0, ran.err
        yield outlast


def test_usage_is_shown_by_what_it_was_used_for(asking):
    told = asking.json("usage", "--by", "user")
    assert [(item["user"], item["tokens"], item["cost"]) for item in told["items"]] == [
        ("bob", 7, 0.5),
        ("ada", 5, 0.5),
    ]
    assert told["total"]["more"] == {"pictures": 4}
    shown = asking("usage", "--by", "model", "--user", "ada").out.splitlines()
    assert shown[0].split() == ["MODEL", "REPORTS", "TOKENS", "IN", "OUT", "COST", "MORE"]
    assert shown[1].split() == ["small", "1", "5", "0", "0", "0.5000", "2", "pictures"]
    assert "all" in asking("usage", "--by", "user").out
    assert "Nothing was used" in asking("usage", "--to", "2020-01-31").err
    ran = asking("usage", "--by", "colour")
    assert (ran.code, "There is no usage by 'colour'" in ran.err) == (2, True)


def test_a_task_shows_what_it_used(asking):
    [task] = asking.json("tasks", "ls", "--user", "ada")["items"]
    assert asking.json("tasks", "show", task["id"])["usage"]["tokens"] == 5


def test_budgets_are_set_listed_hit_and_removed(asking):
    made = asking.json("budgets", "set", "user:*", "--tokens", "10/day", "--then", "refuse")
    assert (made["key"], made["tokens"], made["source"]) == ("user:*", "10/day", "people")
    ask = ("enqueue", "ask", '{"tokens": 11}', "--user", "eve", "--wait")
    assert asking(*ask).code == 0
    refused = asking(*ask)
    assert refused.code == 2
    assert "The budget 'user:eve' is used up: 11 of 10 (tokens)." in refused.err
    [budget] = asking.json("budgets")["items"]
    [used] = budget["used"]
    assert (used["key"], used["used"], used["amount"]) == ("user:eve", 11, 10)
    listed = asking("budgets", "ls").out
    assert "user:eve" in listed and "refuse" in listed
    assert asking("budgets", "set", "user:*", "--tokens", "20/day").out == (
        "user:*: 20/day tokens, then hold.\n"
    )
    assert asking(*ask).code == 0
    assert asking.json("budgets", "rm", "user:*") == {"deleted": "user:*"}
    assert asking("budgets", "rm", "user:*").code == 3
    assert asking("budgets").err == "No budget is defined.\n"
    assert asking("budgets", "set", "user:*").code == 2


def test_a_key_is_made_with_a_quota(outlast):
    made = outlast.json("keys", "create", "client", "--max-living", "5", "--max-tasks", "9")
    assert made["quota"] == {"living": 5, "tasks": 9, "bytes": None, "streams": None}
    assert outlast.json("keys", "create", "client")["quota"] is None
    assert outlast("keys", "create", "client", "--max-streams", "0").code == 2
