"""Where a command works: flags first, then code, then the environment.

With `--server` it works on a server, over HTTP; with `OUTLAST_SERVER` too, unless `--engine` or
`--app` is given. Else it works on an engine itself.

With `--engine` that is the engine. Else it is the app's, if there is an app: the one named by
argument, `--app` or `OUTLAST_APP`, or one found in the current folder. Else it is `OUTLAST_URL`,
else `sqlite:///outlast.db`.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer
from msgspec import Struct

from outlast.core.errors import BadInput, OutlastError

if TYPE_CHECKING:
    from outlast.app import Outlast
    from outlast.cli.operations import Operations

T = TypeVar("T")

PORT: Final = 5278
CANDIDATES: Final = ("main.py", "app.py", "tasks.py", "app/__init__.py", "app/main.py")
"""Where an app is looked for; only files that speak of outlast are imported."""

EngineFlag = Annotated[
    str | None,
    typer.Option(
        "--engine", metavar="URL", help="The engine; else the app's, else $OUTLAST_URL.",
        show_default=False,
    ),
]  # fmt: skip
AppFlag = Annotated[
    str | None,
    typer.Option(
        "--app", metavar="MODULE:APP", help="The app; else $OUTLAST_APP, else the one found here.",
        show_default=False,
    ),
]  # fmt: skip
ServerFlag = Annotated[
    str | None,
    typer.Option(
        "--server", metavar="URL", show_default=False,
        help="Ask this server instead of an engine; else $OUTLAST_SERVER.",
    ),
]  # fmt: skip
KeyFlag = Annotated[
    str | None,
    typer.Option(
        "--key", metavar="KEY", help="The API key for the server; else $OUTLAST_KEY.",
        show_default=False,
    ),
]  # fmt: skip
AppArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[MODULE:APP]", help="The app; else $OUTLAST_APP, else the one found here.",
        show_default=False,
    ),
]  # fmt: skip
JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
HostFlag = Annotated[str, typer.Option("--host", help="The address to listen on.")]
PortFlag = Annotated[int, typer.Option("--port", help="The port to listen on.", min=0, max=65535)]


class Where(Struct, frozen=True):
    """Where a command is to work, as its flags say."""

    app: str | None = None
    engine: str | None = None
    server: str | None = None
    key: str | None = None

    def do(self, work: Callable[[Operations], Awaitable[T]], *, with_app: bool = False) -> T:
        """Do something there. With `with_app` the app's handlers are needed, not its engine only;
        a server has its own."""
        from outlast.cli.operations import Here, There

        server = self.address()
        if server is None:
            app = app_for(self.engine, self.app) if with_app else None
            app = app or bare_for(self.engine, self.app)
            return on(app, lambda opened: work(Here(opened)))

        async def asked() -> T:
            async with There(server, self.key) as there:
                return await work(there)

        return asyncio.run(asked())

    def address(self) -> str | None:
        """Of the server; None where it is an engine."""
        here = self.engine or self.app
        if self.server is not None and here:
            raise BadInput("Give --server, or --engine and --app: it is the one or the other.")
        server = self.server or (None if here else os.environ.get("OUTLAST_SERVER"))
        if self.key is not None and not server:
            raise BadInput("--key is for a server: add --server URL.")
        return server or None


_FLAGS: Final = {"app": AppFlag, "engine": EngineFlag, "server": ServerFlag, "key": KeyFlag}


def somewhere(command: Callable[..., None]) -> Callable[..., None]:
    """A command with the flags that say where to work: it gets them as its parameter `where`."""

    def run(**told: object) -> None:
        flags = {name: told.pop(f"at_{name}") for name in _FLAGS}
        command(where=Where(**flags), **told)  # type: ignore[arg-type]  # as annotated below

    return _signed(run, command, {f"at_{name}": flag for name, flag in _FLAGS.items()})


def local(command: Callable[..., None]) -> Callable[..., None]:
    """A command that works on an engine itself, and says so when it is given a server."""

    def run(**told: object) -> None:
        if told.pop("at_server") is not None:
            raise BadInput(
                f"`outlast {command.__name__}` works on an engine itself, not through a server:"
                " leave --server out, and name the engine with --engine URL."
            )
        command(**told)

    hidden = Annotated[str | None, typer.Option("--server", hidden=True)]
    return _signed(run, command, {"at_server": hidden})


def _signed(
    run: Callable[..., None], command: Callable[..., None], more: dict[str, object]
) -> Callable[..., None]:
    """`run`, which typer is to take for `command` with more options."""
    told = inspect.signature(command, eval_str=True)
    own = [p for p in told.parameters.values() if p.annotation is not Where]
    keyword = inspect.Parameter.KEYWORD_ONLY
    added = [inspect.Parameter(n, keyword, default=None, annotation=a) for n, a in more.items()]
    parameters = [p.replace(kind=keyword) for p in own] + added
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    run.__signature__ = told.replace(parameters=parameters)  # type: ignore[attr-defined]
    return run


def app_for(engine: str | None, target: str | None) -> Outlast:
    """The app to hand tasks to, or to serve; without one, a bare app on the engine."""
    return find_app(engine, target) or _on(engine)


def find_app(engine: str | None, target: str | None) -> Outlast | None:
    """The app that is named or found, on the engine of the flag if that is given."""
    named = place(target)
    app = load(named) if named else _discover()
    if app is not None and engine is not None:
        app.use(engine)
    return app


def place(target: str | None) -> str | None:
    """The app that is named, as `module` or `module:name`, in a place where it can be imported."""
    named = target or os.environ.get("OUTLAST_APP")
    where, mark, name = (named or "").partition(":")
    folder = Path.cwd()
    if where.endswith(".py"):
        file = Path(where).resolve()
        folder, where = file.parent, file.stem
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    return where + mark + name or None


def on_engine(engine: str | None, target: str | None, work: Callable[[Outlast], Awaitable[T]]) -> T:
    """Do something that needs the engine only: what the app defines is left alone."""
    return on(bare_for(engine, target), work)


def bare_for(engine: str | None, target: str | None) -> Outlast:
    """A bare app on the engine of the flag, else on that of the app that is named or found, with
    its keys and what it hides."""
    if engine is not None:
        return _on(engine)
    try:
        app = find_app(None, target)
    except OutlastError as problem:
        raise BadInput(
            f"{problem} To do without the app, name the engine: --engine URL."
        ) from problem
    return _on(None) if app is None else app.bare()


def on(app: Outlast, work: Callable[[Outlast], Awaitable[T]]) -> T:
    """Do something with an open app."""

    async def opened() -> T:
        async with app:
            return await work(app)

    return asyncio.run(opened())


def load(target: str) -> Outlast:
    """The app of `module:name`, or the one in `module`."""
    from outlast.loading import load_app

    where, _, name = target.partition(":")
    module = _import(where)
    if not name:
        found = _name_in(module)
        if found is None:
            raise BadInput(f"There is no Outlast app in {where!r}: write app = Outlast() in it.")
        name = found
    app = load_app(f"{where}:{name}")
    app.target = f"{where}:{name}"
    return app


def _discover() -> Outlast | None:
    for file in CANDIDATES:
        path = Path(file)
        if path.is_file() and "outlast" in path.read_text(errors="replace").lower():
            where = ".".join(part for part in path.with_suffix("").parts if part != "__init__")
            if _name_in(_import(where)) is not None:
                return load(where)
    return None


def _name_in(module: ModuleType) -> str | None:
    """The name of the app in a module: `app`, or the only one there."""
    from outlast.app import Outlast

    apps = {name: value for name, value in vars(module).items() if isinstance(value, Outlast)}
    if "app" in apps:
        return "app"
    if len({id(app) for app in apps.values()}) > 1:
        known = ", ".join(f"{module.__name__}:{name}" for name in apps)
        raise BadInput(f"There are several apps in {module.__name__!r}: name one of {known}.")
    return next(iter(apps), None)


def _import(name: str) -> ModuleType:
    from outlast.loading import load_module

    with redirect_stdout(sys.stderr):  # what it prints is not what we were asked for
        return load_module(name)


def _on(engine: str | None) -> Outlast:
    from outlast.app import Outlast

    return Outlast(engine)
