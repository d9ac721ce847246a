"""Tables and verdicts from the measured runs: medians, and ratios that are paired run by run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from subjects import OUTLAST, PEERS, Subject

Runs = Mapping[str, Sequence[Mapping[str, float]]]
"""By the subject's name: what each run measured, in the order of the runs."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table. With `ahead`, more is better and peers are what it is held against."""

    name: str
    title: str
    show: Callable[[float], str]
    target: str = ""
    ahead: float | None = None
    """At least so many times the faster of the peers that promise the same."""
    below: float | None = None


def rate(value: float) -> str:
    return f"{value:,.0f}/s"


FIGURES = (
    Figure("drain", "no-op drain, one worker process", rate, "10 × the faster peer", ahead=10),
    Figure("cpu_us", "worker CPU per no-op", "{:,.0f} µs".format),
    Figure("enqueue", "enqueue, 50 callers at once", rate, "5 × the faster peer", ahead=5),
    Figure("bulk", "bulk enqueue", rate),
    Figure("p50_ms", "start latency, idle worker, p50", "{:,.1f} ms".format),
    Figure("p99_ms", "start latency, idle worker, p99", "{:,.1f} ms".format, "< 10 ms", below=10),
    Figure("idle", "CPU of an idle worker", "{:.2f} %".format, "< 1 %", below=1),
    Figure("ready_s", "worker start to first task", "{:.2f} s".format, "< 1 s", below=1),
)


def values(runs: Runs, subject: Subject, name: str) -> list[float]:
    return [run[name] for run in runs.get(subject.name, ()) if name in run]


def ratios(runs: Runs, name: str, peers: Sequence[Subject]) -> list[float]:
    """Ours over the fastest of these peers, round by round: neighbours share the machine's mood."""
    ours = values(runs, OUTLAST, name)
    theirs = [values(runs, peer, name) for peer in peers]
    return [mine / max(row) for mine, *row in zip(ours, *filter(None, theirs), strict=False) if row]


def table(runs: Runs) -> list[str]:
    subjects = [subject for subject in (OUTLAST, *PEERS) if subject.name in runs]
    lines = [
        "| | " + " | ".join(subject.name for subject in subjects) + " | target | |",
        "|---|" + "---:|" * len(subjects) + "---|---|",
    ]
    for figure in FIGURES:
        found = [values(runs, subject, figure.name) for subject in subjects]
        if found[0]:
            cells = [figure.show(median(some)) if some else "–" for some in found]
            lines.append(f"| {figure.title} | {' | '.join(cells)} | {_verdict(figure, runs)} |")
    return lines


def _verdict(figure: Figure, runs: Runs) -> str:
    if figure.ahead is not None:
        found = ratios(runs, figure.name, [peer for peer in PEERS if peer.like_for_like])
        if not found:
            return f"{figure.target} | –"
        spread = f" ({min(found):.1f} to {max(found):.1f})" if len(found) > 1 else ""
        met = _met(median(found) >= figure.ahead)
        return f"{figure.target} | **{median(found):.1f} ×**{spread}{met}"
    if figure.below is not None:
        mine = median(values(runs, OUTLAST, figure.name))
        return f"{figure.target} | {figure.show(mine)}{_met(mine < figure.below)}"
    return " | "


def against_each(runs: Runs) -> list[str]:
    """The same ratios against every peer by itself, those that promise less included."""
    lines = ["| Outlast ÷ | " + " | ".join(peer.name for peer in PEERS) + " |"]
    lines.append("|---|" + "---:|" * len(PEERS))
    for figure in FIGURES:
        if figure.ahead is not None and values(runs, OUTLAST, figure.name):
            found = [ratios(runs, figure.name, [peer]) for peer in PEERS]
            cells = [f"{median(some):.1f} ×" if some else "–" for some in found]
            lines.append(f"| {figure.title} | {' | '.join(cells)} |")
    return lines


def backlogs(runs: Sequence[Mapping[str, float]], sizes: tuple[int, int]) -> list[str]:
    growth = [run["many_us"] / run["few_us"] - 1 for run in runs]
    few, many = (median(run[name] for run in runs) for name in ("few_us", "many_us"))
    spread = f" ({min(growth):+.0%} to {max(growth):+.0%})" if len(growth) > 1 else ""
    return [
        f"| waiting | {sizes[0]:,} | {sizes[1]:,} | growth | target | |",
        "|---|---:|---:|---:|---|---|",
        f"| worker CPU per task | {few:.0f} µs | {many:.0f} µs | {median(growth):+.0%}{spread}"
        f" | within a third |{_met(median(growth) <= 1 / 3)} |",
    ]


def _met(yes: bool) -> str:
    return " ✓" if yes else " ✗ missed"
