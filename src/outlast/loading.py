"""Importing the user's app by name, as workers, their children and the command line do."""

from __future__ import annotations

import sys
import traceback
from contextvars import ContextVar
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final

from outlast.core.errors import BadInput, OutlastError

if TYPE_CHECKING:
    from outlast.app import Outlast

_importing: Final[ContextVar[str | None]] = ContextVar("outlast_importing", default=None)


def load_module(name: str) -> ModuleType:
    """A module of the user's; whatever goes wrong in it is told in one sentence, with its place.

    No BadInput: in a child, that would kill a task whose app is just being replaced.
    """
    token = _importing.set(name)
    try:
        return import_module(name)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and error.name in (name, name.partition(".")[0]):
            raise OutlastError(
                f"There is no module {name!r} here or among what is installed."
            ) from error
        last = traceback.extract_tb(error.__traceback__)[-1]
        file, line, told = last.filename, last.lineno, str(error)
        if isinstance(error, SyntaxError):
            file, line, told = error.filename or file, error.lineno, error.msg
        raise OutlastError(
            f"Cannot import {name!r}: {type(error).__name__}: {told} ({Path(file).name}:{line})."
        ) from error
    finally:
        _importing.reset(token)


def check_not_importing() -> None:
    """Refuse to work in a module that is only imported: a script that starts a worker at its top
    level would start another one in each of that worker's processes, and so on."""
    module = _importing.get()
    if module is not None:
        raise OutlastError(
            f"{module!r} is being imported for its handlers, and its top level opens the app: put "
            'that under `if __name__ == "__main__":`.'
        )


def load_app(target: str) -> Outlast:
    """The app behind `module:name`."""
    module, _, name = target.partition(":")
    app: object = load_module(module)
    for part in (name or "app").split("."):
        app = getattr(app, part, None)
    if not hasattr(app, "handlers"):
        raise BadInput(f"{target!r} is no Outlast app: name one as in 'mymodule:app'.")
    return app  # type: ignore[return-value]  # as good as we can tell


def target_of(app: Outlast, modules: set[str]) -> str | None:
    """`module:name` of an app, looked for where its handlers are."""
    for module in sorted(modules & sys.modules.keys()):
        for name, value in vars(sys.modules[module]).items():
            if value is app:
                return f"{importable(module)}:{name}"
    return None


def importable(module: str) -> str:
    """The name under which another process can import it: a script is not `__main__` there."""
    if module != "__main__":
        return module
    main = sys.modules[module]
    file = getattr(main, "__file__", None)  # an interactive session has none
    return main.__spec__.name if main.__spec__ else Path(file).stem if file else module
