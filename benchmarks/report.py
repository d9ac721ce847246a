"""Tables and verdicts from the measured runs: medians, and ratios that are paired run by run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from scenarios import Measured, Sizes
from subjects import Subject

Runs = Mapping[str, Sequence[Measured]]
"""By the subject's name: what each run measured, in the order of the runs."""

THIRD: Final = 1 / 3
QUARTER: Final = 1 / 4


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table."""

    name: str
    title: str
    show: Callable[[float], str]


@dataclass(frozen=True, slots=True)
class Target:
    """What a figure of ours must reach: so many times that of some peers, or below a number."""

    figure: str
    title: str
    ahead: float | None = None
    peers: tuple[str, ...] = ()
    """The peers it is held against, the fastest of them; none named: all that promise the same."""
    below: float | None = None


@dataclass(slots=True)
class Report:
    """The lines of one engine's report, and which targets were met."""

    lines: list[str] = field(default_factory=list)
    verdicts: dict[str, bool] = field(default_factory=dict)


def rate(value: float) -> str:
    return f"{value:,.0f}/s"


FIGURES: Final = (
    Figure("drain", "no-op drain, one worker process", rate),
    Figure("drain2", "no-op drain, two worker processes", rate),
    Figure("cpu_us", "worker CPU per no-op", "{:,.0f} µs".format),
    Figure("server_us", "server CPU per no-op", "{:,.0f} µs".format),
    Figure("enqueue", "enqueue, 50 callers at once", rate),
    Figure("bulk", "bulk enqueue", rate),
    Figure("p50_ms", "start latency, idle worker, p50", "{:,.1f} ms".format),
    Figure("p99_ms", "start latency, idle worker, p99", "{:,.1f} ms".format),
    Figure("idle", "CPU of an idle worker", "{:.2f} %".format),
    Figure("idle_server", "CPU of the server meanwhile", "{:.2f} %".format),
    Figure("ready_s", "worker start to first task", "{:.2f} s".format),
)

_EVERYWHERE: Final = (
    Target("idle", "< 1 %", below=1),
    Target("ready_s", "< 1 s", below=1),
)
_HALF_RAW: Final = Target("bulk", "half of raw", ahead=0.5, peers=("raw",))
_LATENCY: Final = Target("p99_ms", "< 10 ms", below=10)
TARGETS: Final[dict[str, tuple[Target, ...]]] = {
    "sqlite": (
        *_EVERYWHERE,
        _LATENCY,
        Target("drain", "10 × the faster peer", ahead=10),
        Target("enqueue", "5 × the faster peer", ahead=5),
    ),
    "redis": (
        *_EVERYWHERE,
        _LATENCY,
        _HALF_RAW,
        Target("drain", "5 × the fastest", ahead=5),
    ),
    "postgresql": (
        *_EVERYWHERE,
        _LATENCY,
        _HALF_RAW,
        Target("drain", "1.5 × PgQueuer", ahead=1.5, peers=("PgQueuer",)),
        Target("drain", "10 × Procrastinate", ahead=10, peers=("Procrastinate",)),
    ),
    "mongodb": (
        *_EVERYWHERE,
        _HALF_RAW,
        Target("p99_ms", "< 40 ms", below=40),
        Target("drain", "5 × Celery", ahead=5, peers=("Celery",)),
    ),
}


def values(runs: Runs, subject: Subject, name: str) -> list[float]:
    return [run[name] for run in runs.get(subject.name, ()) if name in run]


def ratios(runs: Runs, name: str, ours: Subject, peers: Sequence[Subject]) -> list[float]:
    """Ours over the fastest of these peers, round by round: neighbours share the machine's mood."""
    theirs = [values(runs, peer, name) for peer in peers]
    mine = values(runs, ours, name)
    return [one / max(row) for one, *row in zip(mine, *filter(None, theirs), strict=False) if row]


def table(report: Report, runs: Runs, subjects: Sequence[Subject], engine: str) -> None:
    shown = [subject for subject in subjects if runs.get(subject.name)]
    names = " | ".join(subject.name for subject in shown)
    report.lines += [f"| | {names} | target | |", "|---|" + "---:|" * len(shown) + "---|---|"]
    for figure in FIGURES:
        found = [values(runs, subject, figure.name) for subject in shown]
        if found[0]:
            cells = [figure.show(median(some)) if some else "–" for some in found]
            targets = [t for t in TARGETS[engine] if t.figure == figure.name]
            verdict = " | ".join(_verdicts(report, targets, figure, runs, shown))
            report.lines.append(f"| {figure.title} | {' | '.join(cells)} | {verdict} |")


def _verdicts(
    report: Report,
    targets: Sequence[Target],
    figure: Figure,
    runs: Runs,
    subjects: Sequence[Subject],
) -> tuple[str, str]:
    """What is aimed at, and what was reached."""
    ours, *others = subjects
    reached = []
    for target in targets:
        if target.below is not None:
            mine = median(values(runs, ours, figure.name))
            text, met = figure.show(mine), mine < target.below
        else:
            peers = [
                peer
                for peer in others
                if (peer.name in target.peers if target.peers else peer.like_for_like)
                and (target.peers or not peer.only)
            ]
            found = ratios(runs, figure.name, ours, peers)
            if not found:
                reached.append("–")
                continue
            met = median(found) >= (target.ahead or 0)
            text = f"**{median(found):.3g} ×**{_spread(found, '{:.3g}')}"
        report.verdicts[f"{figure.title}: {target.title}"] = met
        reached.append(text + _met(met))
    return "; ".join(target.title for target in targets), "; ".join(reached)


def against_each(
    report: Report, runs: Runs, subjects: Sequence[Subject], names: Sequence[str]
) -> None:
    """The same ratios against every peer by itself, those that promise less included."""
    ours, *peers = (subject for subject in subjects if not subject.only)
    rows = []
    for figure in FIGURES:
        if figure.name in names and values(runs, ours, figure.name):
            found = [ratios(runs, figure.name, ours, [peer]) for peer in peers]
            cells = [
                f"{median(some):.1f} ×{_spread(some, '{:.1f}')}" if some else "–" for some in found
            ]
            rows.append(f"| {figure.title} | {' | '.join(cells)} |")
    if rows and peers:
        report.lines += ["", "| Outlast ÷ | " + " | ".join(peer.name for peer in peers) + " |"]
        report.lines += ["|---|" + "---:|" * len(peers), *rows]


def backlogs(report: Report, runs: Sequence[Measured], sizes: Sizes) -> None:
    report.lines += ["", "| CPU per task, worker and server | | growth | target | |"]
    report.lines += ["|---|---:|---:|---|---|"]
    few = median(run["few_us"] for run in runs)
    report.lines.append(f"| {sizes.few:,} waiting | {few:.0f} µs | | | |")
    for name, title in (
        ("many_us", f"{sizes.many:,} waiting"),
        ("blocked_us", f"{sizes.blocked:,} behind a full limit"),
    ):
        growth = [run[name] / run["few_us"] - 1 for run in runs]
        met = median(growth) <= THIRD
        report.verdicts[f"{title}: CPU within a third"] = met
        shown = f"{median(growth):+.0%}{_spread(growth, '{:+.0%}')}"
        cpu_us = median(run[name] for run in runs)
        report.lines.append(
            f"| {title} | {cpu_us:.0f} µs | {shown} | within a third |{_met(met)} |"
        )


def snapshots(report: Report, runs: Sequence[Measured], sizes: Sizes) -> None:
    lost = [1 - run["held"] / run["free"] for run in runs]
    met = median(lost) <= QUARTER
    report.verdicts["a held transaction: at most a quarter lost"] = met
    free, held = (median(run[name] for run in runs) for name in ("free", "held"))
    report.lines += [
        "",
        f"| drain of {sizes.held:,} | alone | beside an open transaction | lost | target | |",
        "|---|---:|---:|---:|---|---|",
        f"| one worker process | {rate(free)} | {rate(held)} | {median(lost):.0%}"
        f"{_spread(lost, '{:.0%}')} | at most a quarter |{_met(met)} |",
    ]


def _spread(found: Sequence[float], form: str) -> str:
    if len(found) < 2:
        return ""
    return f" ({form.format(min(found))} to {form.format(max(found))})"


def _met(yes: bool) -> str:
    return " ✓" if yes else " ✗ missed"
