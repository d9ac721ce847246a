"""HTTP: the API under `/api/v1`, health at the root, and a plain page that shows what goes on."""

from outlast.http.api import create_api
from outlast.http.serve import serve

__all__ = ["create_api", "serve"]
