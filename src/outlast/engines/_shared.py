"""What engines share: statements kept in files of their own, found by name."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


@cache
def statements(package: str, file: str) -> dict[str, str]:
    """The `-- name: verb` blocks of one script, by name, comments above the first one dropped."""
    parts = _NAME.split(files(package).joinpath(file).read_text())
    return {name: body.strip() for name, body in zip(parts[1::2], parts[2::2], strict=True)}
