"""The four services of the async task pattern: report generation, data analysis, document
processing and data export, as types that services elsewhere run, with the pattern's settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from outlast.app import Outlast
from outlast.core.retry import Retry

QUEUE: Final = "services"
TIMEOUT_S: Final = 300
RETRY: Final = Retry.exponential("1s", "60s", jitter=0.2)
"""One attempt and three retries, after 1, 2 and 4 s."""

_TEXT: Final = {"type": "string"}
_TYPES: Final[Mapping[str, tuple[str, str, Mapping[str, object], tuple[str, ...]]]] = {
    "report.generate": (
        "generate_report_tool",
        "Generate a report for a quarter of a year",
        {
            "quarter": {"type": "string", "enum": ["Q1", "Q2", "Q3", "Q4"]},
            "year": {"type": "integer", "minimum": 1900, "maximum": 9999},
            "format": {"type": "string", "enum": ["pdf", "html", "csv"], "default": "pdf"},
        },
        ("quarter", "year"),
    ),
    "data.analyze": (
        "analyze_data_tool",
        "Analyse a set of data and answer a question about it",
        {"source": _TEXT, "question": _TEXT},
        ("source",),
    ),
    "document.process": (
        "process_document_tool",
        "Process a document: extract its text, its tables or both",
        {
            "document_url": _TEXT,
            "extract": {"type": "string", "enum": ["text", "tables", "all"], "default": "all"},
        },
        ("document_url",),
    ),
    "data.export": (
        "export_data_tool",
        "Export a set of data into a file",
        {
            "source": _TEXT,
            "format": {"type": "string", "enum": ["csv", "json", "xlsx"], "default": "csv"},
        },
        ("source",),
    ),
}
TOOL_NAMES: Final[Mapping[str, str]] = {type: told[0] for type, told in _TYPES.items()}
"""The pattern's names of the tools: `AgentTools(app, session, names=TOOL_NAMES)`."""


def declare(app: Outlast) -> None:
    """Make the four types known to an app; services elsewhere run them."""
    for type, (_, description, properties, required) in _TYPES.items():
        app.external(
            type,
            schema={
                "description": description,
                "type": "object",
                "properties": dict(properties),
                "required": list(required),
                "additionalProperties": False,
            },
            queue=QUEUE,
            timeout=TIMEOUT_S,
            overdue_after=TIMEOUT_S,
            retry=RETRY,
        )
