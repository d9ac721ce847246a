"""The documentation is true: its code runs, its links lead somewhere, nothing is left out.

Every ```python block of a page runs, in order, in one namespace per page: a page reads like a
notebook. `await` works at the top level. What a reader need not see (an import, a worker in the
background) stands in a comment, `<!-- python … -->`, and runs in its place. There is no way to skip
a block.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import util
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

import outlast.decorating
import outlast.engine
import outlast.options
from outlast.app import Outlast
from outlast.core.failures import KINDS
from outlast.http import problems
from outlast.http.api import create_api
from outlast.worker import Worker

ROOT: Final = Path(__file__).parent.parent
PAGES: Final = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
EXAMPLES: Final = sorted(ROOT.glob("examples/*.py"))
SOURCES: Final = sorted(ROOT.glob("src/outlast/**/*.py"))

FENCE: Final = re.compile(r"^(```|~~~)([^\n]*)\n(.*?)^\1 *$", re.M | re.S)
CODE: Final = re.compile(r"^```python\n(.*?)^```$|^<!-- python\n(.*?)^-->$", re.M | re.S)
LINK: Final = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
HEADING: Final = re.compile(r"^#+ +(.+?) *$", re.M)


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def reference() -> str:
    return "\n".join(path.read_text() for path in sorted(ROOT.glob("docs/reference/*.md")))


DESIGNS: Final = {"S0": 16, "S1": 16, "S2": 12, "S3": 10, "S4": 12}
"""The five designs, and how many requirements each has."""


# Code --------------------------------------------------------------------------------------------


def blocks(text: str) -> Iterator[tuple[int, str]]:
    """The code of a page, with the line it begins in."""
    for found in CODE.finditer(text):
        yield text.count("\n", 0, found.start()) + 1, found[1] or found[2]


@pytest.mark.parametrize("path", [p for p in PAGES if CODE.search(p.read_text())], ids=name)
def test_the_code_of_a_page_runs(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OUTLAST_URL", raising=False)

    code_of_page = list(blocks(path.read_text()))

    async def run() -> None:
        space: dict[str, object] = {"__name__": path.stem}
        for line, code in code_of_page:
            tree = compile("\n" * line + code, name(path), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            done = eval(tree, space)  # noqa: S307  # our own documentation
            if inspect.iscoroutine(done):
                await done

    asyncio.run(asyncio.wait_for(run(), 30))


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_every_python_block_is_one_that_runs(path: Path) -> None:
    shown = [found[2] for found in FENCE.finditer(path.read_text()) if found[2].startswith("py")]
    run = [found for found in CODE.finditer(path.read_text()) if found[1]]
    assert shown == ["python"] * len(run)


@pytest.mark.parametrize("path", EXAMPLES, ids=name)
def test_an_example_runs(path: Path, tmp_path: Path) -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("OUTLAST_")}
    done = subprocess.run(  # noqa: S603  # our own example
        [sys.executable, "-W", "error", path],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.parametrize("path", EXAMPLES, ids=name)
def test_an_example_is_short_and_says_what_it_shows(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= 60
    assert ast.get_docstring(ast.parse(text))


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_commands_that_are_shown_exist(path: Path) -> None:
    known = {command.removeprefix("outlast ") for command, _ in generator().commands_of()}
    groups = {command.partition(" ")[0] for command in known if " " in command}
    for found in FENCE.finditer(path.read_text()):
        if found[2] not in ("sh", "console"):
            continue
        for said in re.findall(r"^(?:\$ )?outlast +([a-z-]+)(?: +([a-z]+))?", found[3], re.M):
            command = " ".join(said).strip() if said[0] in groups else said[0]
            assert command in known or command == "--help", command


def test_what_curl_sends_to_a_server_is_said_to_be_json() -> None:
    """Without that it is refused: a page elsewhere may send anything else in a visitor's name."""
    for page in PAGES:
        text = page.read_text().replace("\\\n", " ")
        for line in re.findall(r"^.*\bcurl .*$", text, re.M):
            if "/api/" in line and re.search(r" (-d|--data\S*) ", line):
                assert "content-type: application/json" in line.lower(), f"{name(page)}: {line}"


# What code says ----------------------------------------------------------------------------------


def generator() -> ModuleType:
    spec = util.spec_from_file_location("outlast_docs", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", sorted(ROOT.glob("docs/reference/*.md")), ids=name)
def test_generated_parts_are_what_the_code_says(path: Path) -> None:
    text = path.read_text()
    assert generator().generated(text) == text, "run: .venv/bin/python docs/generate.py"


def test_every_command_is_in_the_reference() -> None:
    text = (ROOT / "docs/reference/cli.md").read_text()
    missing = [path for path, _ in generator().commands_of() if f"`{path}`" not in text]
    assert missing == []


def test_every_route_is_in_the_reference() -> None:
    text = (ROOT / "docs/reference/http.md").read_text()
    paths = create_api(Outlast("memory://")).openapi()["paths"]
    calls = [f"{method.upper()} {path}" for path, methods in paths.items() for method in methods]
    assert [call for call in calls if f"`{call}`" not in text] == []


def test_every_setting_is_in_the_reference() -> None:
    text = (ROOT / "docs/reference/config.md").read_text()
    said = set(re.findall(r"OUTLAST_[A-Z_]+", "\n".join(p.read_text() for p in SOURCES)))
    for owner in (Outlast, Worker):
        said |= inspect.signature(owner).parameters.keys()
    said |= outlast.decorating.TaskArgs.__annotations__.keys()
    said |= outlast.options.Options.__annotations__.keys()
    assert sorted(word for word in said if f"`{word}`" not in text) == []


def test_every_event_kind_is_in_the_reference() -> None:
    told = " ".join((outlast.engine.__doc__ or "").split())
    written = re.search(r"Kinds written by engines: (.*?)\. Followed", told)
    assert written is not None
    kinds = set(re.findall(r"`(\w+)`", written[1])) | {"reset"}
    for path in SOURCES:
        kinds |= set(re.findall(r"NewEvent\(\s*kind=\"(\w+)\"", path.read_text()))
    assert {"state", "done", "chunk"} <= kinds
    text = reference()
    assert sorted(kind for kind in kinds if f"| `{kind}` |" not in text) == []


def test_every_code_of_an_error_is_in_the_documentation() -> None:
    http = (ROOT / "docs/reference/http.md").read_text()
    codes = {*problems.CODES.values(), *(error.code for error in problems.STATUS)}
    assert sorted(code for code in codes if f"`{code}`" not in http) == []
    retries = (ROOT / "docs/guide/retries.md").read_text()
    assert sorted(code for code in KINDS if f"`{code}`" not in retries) == []


# Links and places --------------------------------------------------------------------------------


def anchors(path: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    words = (
        re.sub(r"[^\w\- ]", "", heading.lower()) for heading in HEADING.findall(path.read_text())
    )
    return {word.replace(" ", "-") for word in words}


@pytest.mark.parametrize("path", [*PAGES, ROOT / "docs/llms.txt"], ids=name)
def test_links_lead_somewhere(path: Path) -> None:
    for target in LINK.findall(FENCE.sub("", path.read_text())):
        if target.startswith(("https://", "http://", "mailto:")):
            continue
        file, _, anchor = target.partition("#")
        there = (path.parent / file).resolve() if file else path
        assert there.exists(), target
        assert there.is_relative_to(ROOT), target
        if anchor:
            assert anchor in anchors(there), target


def test_every_page_can_be_reached_from_the_index() -> None:
    seen: set[Path] = set()
    new = [ROOT / "docs/index.md"]
    while new:
        page = new.pop()
        seen.add(page)
        for target in LINK.findall(page.read_text()):
            there = (page.parent / target.partition("#")[0]).resolve()
            if there.suffix == ".md" and there.is_file() and there not in seen:
                new.append(there)
    assert [name(page) for page in PAGES if page not in seen] == []


@pytest.mark.parametrize("path", [*PAGES, *EXAMPLES], ids=name)
def test_no_place_of_one_machine_is_named(path: Path) -> None:
    text = path.read_text()
    assert str(ROOT) not in text
    assert not re.findall(r"(?:/(?:home|Users|root|work)/|C:\\)\S*", text)


# The five designs --------------------------------------------------------------------------------


def requirements() -> dict[str, list[str]]:
    """The rows of the table of requirements: asked, where, decided differently."""
    text = (ROOT / "docs/systems/index.md").read_text()
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| S")]
    found = {cells[0].strip(): [cell.strip() for cell in cells[1:]] for cells in rows}
    assert len(found) == len(rows), "a row is there twice"
    return found


def test_every_requirement_of_the_five_designs_has_its_row() -> None:
    rows = [f"{design}.{n}" for design, last in DESIGNS.items() for n in range(1, last + 1)]
    assert list(requirements()) == rows


@pytest.mark.parametrize("row", requirements())
def test_a_requirement_is_in_a_place_with_a_test_and_has_its_decision(row: str) -> None:
    asked, where, differently = requirements()[row]
    assert asked
    assert differently
    folder = ROOT / "docs/systems"
    tests = re.findall(r"\[`(test_\w+)`\]\(([^)]+)\)", where)
    assert tests, "name a test that shows it"
    for test, file in tests:
        assert re.search(rf"\bdef {test}\(", (folder / file).read_text()), test
    assert where.partition("[`test_")[0], "say where it lives"
