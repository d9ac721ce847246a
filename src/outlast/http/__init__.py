"""HTTP: the API under `/api/v1`, health at the root, and a plain page that shows what goes on."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from outlast.http.api import create_api
    from outlast.http.serve import serve

__all__ = ["create_api", "serve"]


def __getattr__(name: str) -> object:
    """Late: clients need the shapes of the API only, and a web framework takes half a second."""
    if name == "create_api":
        from outlast.http.api import create_api

        return create_api
    if name == "serve":
        from outlast.http.serve import serve

        globals()["serve"] = serve  # importing the module of that name has put it here
        return serve
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
