"""Writes the parts of the reference that code knows better: `python docs/generate.py`.

So are the types of the TypeScript client, if its tools are there (`make generate` sees to that).

A page has sections between `<!-- generated: name -->` and `<!-- end -->`; everything else in it is
written by hand. `tests/test_docs.py` fails when a section is not what the code says.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import typer.main
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from outlast.app import Outlast
from outlast.cli import app as cli
from outlast.core.states import FINAL, LEGAL, STATES, STATUSES, VOCABULARY, status_of
from outlast.http.api import create_api
from outlast.metrics import FAMILIES

DOCS: Final = Path(__file__).parent
WEB: Final = DOCS.parent / "web"
SECTION: Final = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
SOURCES: Final = (
    "AsyncTaskFlow", "Async task pattern", "Task queue architecture", "ADE", "AutoMechanica",
)  # fmt: skip
SHARED: Final = {"at_server", "at_key", "at_app", "at_engine", "app", "engine", "json"}
"""Options that most commands have; the page tells them once."""


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [_row(head), _row("---" for _ in head), *map(_row, rows)]
    return "\n".join(lines) + "\n"


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


# States ------------------------------------------------------------------------------------------

_NOW: Final = 1_000
_CASES: Final = (
    ("pending", None, "primary", None, "pending, not parked"),
    ("pending", "time", "primary", None, "pending, parked on time, in the primary lane"),
    ("pending", "time", "retry", None, "pending, parked on time, in the retry lane"),
    ("pending", "limit:k", "primary", None, "pending, parked on a limit: slots, rate or circuit"),
    ("pending", "deps", "primary", None, "pending, parked on other tasks"),
    ("pending", "signal:s", "primary", None, "pending, parked on a signal"),
    ("running", None, "primary", _NOW, "running, its worker's lease is live"),
    ("running", None, "primary", _NOW - 1, "running, its worker's lease is over"),
    ("completed", None, "primary", None, "stored"),
    ("cancelled", None, "primary", None, "stored"),
    ("dead", None, "primary", None, "stored"),
)


def statuses() -> str:
    """Every status with the conditions that the function itself maps to it."""
    conditions: dict[str, list[str]] = {status: [] for status in STATUSES}
    for state, parked, lane, lease_until, told in _CASES:
        conditions[status_of(state, parked, lane, lease_until, _NOW)].append(told)
    return table(
        ("status", "state", "when"),
        (
            (f"`{status}`", f"`{told[0].split(',')[0] if told[0] != 'stored' else status}`",
             "; or ".join(told))
            for status, told in conditions.items()
        ),
    )  # fmt: skip


def transitions() -> str:
    return table(
        ("from", "to", ""),
        (
            (f"`{state}`", ", ".join(f"`{to}`" for to in STATES if to in LEGAL[state]) or "nowhere",
             "final" if state in FINAL else "")
            for state in STATES
        ),
    )  # fmt: skip


def vocabulary() -> str:
    rows = ((f"`{status}`", *(word or "–" for word in VOCABULARY[status])) for status in STATUSES)
    return table(("status", *SOURCES), rows)


# Command line ------------------------------------------------------------------------------------


def commands() -> str:
    return "\n".join(_command(path, command) for path, command in commands_of())


def commands_of() -> list[tuple[str, TyperCommand | TyperGroup]]:
    return list(leaves(typer.main.get_command(cli)))


def leaves(
    command: object, path: str = "outlast"
) -> Iterator[tuple[str, TyperCommand | TyperGroup]]:
    """Every command that can be called and is not hidden, with its full name."""
    if isinstance(command, TyperCommand):
        yield path, command
    elif isinstance(command, TyperGroup):
        if path != "outlast" and command.invoke_without_command:
            yield path, command
        for name, part in command.commands.items():
            if not part.hidden:
                yield from leaves(part, f"{path} {name}")


def _command(path: str, command: TyperCommand | TyperGroup) -> str:
    told = " ".join((command.help or "").split())
    usage = [path, *(p.metavar or str(p.name) for p in command.params if _is_argument(p))]
    rows = [
        (_flags(p), _option_help(p))
        for p in command.params
        if isinstance(p, TyperOption) and not p.hidden and p.name not in SHARED
    ]
    options = "\n" + table(("option", ""), rows) if rows else ""
    return f"### `{path}`\n\n`{' '.join(usage)}`\n\n{told}\n{options}"


def _is_argument(parameter: object) -> bool:
    return isinstance(parameter, TyperArgument)


def _flags(option: TyperOption) -> str:
    flags = ", ".join(f"`{flag}`" for flag in (*option.opts, *option.secondary_opts))
    return f"{flags} {option.metavar}" if option.metavar else flags


def _option_help(option: TyperOption) -> str:
    default = option.default
    shown = default not in (None, False, ()) and not callable(default) and not option.is_flag
    return f"{option.help or ''}{f' Default: `{default}`.' if shown else ''}"


# HTTP --------------------------------------------------------------------------------------------


def routes() -> str:
    document = create_api(Outlast("memory://")).openapi()
    rows = [
        (f"`{method.upper()} {path}`", _route_help(told))
        for path, methods in document["paths"].items()
        for method, told in methods.items()
    ]
    return table(("call", ""), rows)


def _route_help(told: dict[str, Any]) -> str:
    names = [p["name"] for p in told.get("parameters", ()) if p["in"] in ("query", "header")]
    extra = f" ({', '.join(f'`{name}`' for name in names)})" if names else ""
    return f"{told['summary']}{extra}"


# Metrics -----------------------------------------------------------------------------------------


def metrics() -> str:
    rows = (
        (f"`{f.name}`", f.kind, ", ".join(f"`{label}`" for label in f.labels), f.of, f.help)
        for f in FAMILIES
    )
    return table(("metric", "kind", "labels", "of", ""), rows)


SECTIONS: Final[dict[str, Callable[[], str]]] = {
    "statuses": statuses,
    "transitions": transitions,
    "vocabulary": vocabulary,
    "commands": commands,
    "routes": routes,
    "metrics": metrics,
}


def generated(page: str) -> str:
    """The page with its sections as the code says they are."""
    return SECTION.sub(lambda found: found[1] + SECTIONS[found[2]]() + found[3], page)


def main() -> None:
    for path in sorted(DOCS.glob("reference/*.md")):
        text = path.read_text()
        if (new := generated(text)) != text:
            path.write_text(new)
    npm = shutil.which("npm")
    if npm and (WEB / "node_modules").is_dir():
        environment = {**os.environ, "OUTLAST_PYTHON": sys.executable}
        subprocess.run([npm, "run", "--silent", "api"], cwd=WEB, env=environment, check=True)  # noqa: S603  # our own


if __name__ == "__main__":
    main()
