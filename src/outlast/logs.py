"""Log lines without secrets: those of a task's own logger, and those of servers and clients."""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from outlast.core.secret import Mask
from outlast.core.text import without_query

if TYPE_CHECKING:
    Adapter = logging.LoggerAdapter[logging.Logger]
else:
    Adapter = logging.LoggerAdapter


class MaskedLog(Adapter):
    """A logger whose lines, tracebacks included, do not show the secrets of one task."""

    def __init__(self, logger: logging.Logger, extra: Mapping[str, object], mask: Mask) -> None:
        super().__init__(logger, extra)
        self._mask = mask

    def log(
        self, level: int, msg: object, *args: object, exc_info: Any = None, **kwargs: Any
    ) -> None:
        if not self.isEnabledFor(level):
            return
        told = logging.LogRecord("", level, "", 0, msg, args, None).getMessage()
        if exc_info:
            error = exc_info if isinstance(exc_info, BaseException) else sys.exception()
            told = "\n".join((told, *traceback.format_exception(error))) if error else told
        kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1
        super().log(level, "%s", self._mask.text(told.rstrip()), **kwargs)


def no_queries(record: logging.LogRecord) -> bool:
    """A filter: addresses are logged without the values of their queries, which may be tokens."""
    if isinstance(record.args, tuple):
        record.args = tuple(
            arg if arg is None or isinstance(arg, int | float) else without_query(str(arg))
            for arg in record.args
        )
    return True
