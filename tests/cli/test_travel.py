"""`outlast tasks steps`, `rerun` and `export`."""

from __future__ import annotations

APP = """
from outlast import Context, Outlast

app = Outlast()

async def shout(text: str) -> str:
    return text.upper()

@app.task
async def greet(ctx: Context, name: str) -> str:
    first = await ctx.step("first", shout, name)
    return first + await ctx.step("second", shout, "!")
"""


def test_steps_rerun_and_export(project):
    project.write_app(text=APP)
    waiting = project.id_of("greet", '{"name": "ada"}', "--delay", "1h")
    assert project("tasks", "rerun", waiting).code == 2  # not over yet
    with project.running("worker"):
        _travel(project)


def _travel(project):
    first = project.id_of("greet", '{"name": "ada"}')
    assert project("tasks", "watch", first, "--timeout", "30s").code == 0
    told = project.json("tasks", "steps", first)
    assert [(step["name"], step["value"]) for step in told["items"]] == [
        ("first", "ADA"), ("second", "!"),
    ]  # fmt: skip
    again = project.json("tasks", "rerun", first, "--from", "second", "--step", 'first="BOB"')
    assert again["origin_id"] == first
    assert project("tasks", "watch", again["id"], "--timeout", "30s").code == 0
    assert project.json("tasks", "show", again["id"])["result"] == "BOB!"
    for wrong, words in (
        (("--from", "thrid"), "no such step"),
        (("--from", "second", "--step", "first"), "write NAME=JSON"),
    ):
        ran = project("tasks", "rerun", first, *wrong)
        assert ran.code == 2
        assert words in ran.err
    source = project("tasks", "export", first, "--pytest")
    assert source.code == 0
    assert "STEPS = {'first': 'ADA', 'second': '!'}" in source.out
    assert project("tasks", "export", first).code == 2
