"""The retry policy: a value that decides what follows a failed attempt, and that a handler may
raise to ask for another one."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from outlast.core.durations import MAX_MS, Duration, show_ms, to_ms
from outlast.core.errors import BadInput
from outlast.core.failures import Failure

# Seconds, by failure code; the design this table comes from gives it for its four error types.
_RATE_LIMIT: Final = (60, 120, 300, 600)
_UNAVAILABLE: Final = (5, 10, 30, 60, 120)
_TIMEOUT: Final = (2, 5, 10, 30, 60)
_OTHER: Final = (5, 15, 60, 300)
_TABLE: Final = {
    "rate_limit": _RATE_LIMIT,
    "unavailable": _UNAVAILABLE,
    "timeout": _TIMEOUT,
    "timed_out": _TIMEOUT,
    "network": _TIMEOUT,
}
_JITTER: Final = 0.1


@dataclass(frozen=True, slots=True)
class Decision:
    """What follows a failed attempt: another one after `delay_ms`, or death for `reason`
    ("permanent", "out_of_memory", "never" or "attempts")."""

    delay_ms: int | None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class _Table:
    """Schedules by failure code."""

    def ms_at(self, attempt: int, code: str) -> float:
        steps = _TABLE.get(code, _OTHER)
        return steps[min(attempt, len(steps)) - 1] * 1_000

    def __str__(self) -> str:
        return "Retry("


@dataclass(frozen=True, slots=True)
class _Steps:
    """One schedule for everything; its last entry repeats."""

    steps_ms: tuple[int, ...]

    def ms_at(self, attempt: int, code: str) -> float:
        return self.steps_ms[min(attempt, len(self.steps_ms)) - 1]

    @property
    def text(self) -> str:
        return " ".join(show_ms(ms).replace(" ", "") for ms in self.steps_ms)

    def __str__(self) -> str:
        return f'Retry("{self.text}"'


@dataclass(frozen=True, slots=True)
class _Exponential:
    base_ms: int
    cap_ms: int
    factor: float

    def ms_at(self, attempt: int, code: str) -> float:
        try:
            return min(self.base_ms * math.pow(self.factor, attempt - 1), self.cap_ms)
        except OverflowError:
            return self.cap_ms

    def __str__(self) -> str:
        base, cap = show_ms(self.base_ms), show_ms(self.cap_ms)
        return f'Retry.exponential(base="{base}", cap="{cap}", factor={self.factor:g}'


@dataclass(frozen=True, slots=True)
class _Polynomial:
    unit_ms: int
    power: float

    def ms_at(self, attempt: int, code: str) -> float:
        try:
            return min(self.unit_ms * math.pow(attempt, self.power), MAX_MS)
        except OverflowError:
            return MAX_MS

    def __str__(self) -> str:
        return f'Retry.polynomial(unit="{show_ms(self.unit_ms)}", power={self.power:g}'


@dataclass(frozen=True, slots=True)
class _Rule:
    """For failures with one of these class names or codes: this policy, or none (never)."""

    names: tuple[str, ...]
    policy: Retry | None

    def fits(self, failure: Failure) -> bool:
        return any(name == failure.code or name in failure.names for name in self.names)


@dataclass(frozen=True, slots=True)
class _Plan:
    """Everything a policy is made of, so that policies compare and copy as values."""

    shape: _Table | _Steps | _Exponential | _Polynomial
    jitter: float
    symmetric: bool = False
    timeout_factor: float = 1.0
    rules: tuple[_Rule, ...] = ()
    after_ms: int | None = None


class Retry(Exception):
    """When to try again.

    `Retry()` follows a table by failure code: rate_limit 60 120 300 600 s; unavailable
    5 10 30 60 120; timeout, timed_out and network 2 5 10 30 60; everything else 5 15 60 300.
    `Retry("5s 30s 2m")` is one schedule for everything. The last entry repeats, the attempt's
    number chooses the entry, and jitter adds up to 10 %. How often is `max_attempts`, not this.

    `.on(error, schedule)` and `.never(error, …)` return a new policy with a rule more. The first
    rule that fits decides, in the order they were added. An error is an exception class, the name
    of one, or a failure code; classes are matched by name along the ancestry, so that rules meet
    errors of other languages too. A rule also overrules the classification: a 404 is permanent,
    but `.on("not_found", "5s")` retries it. Only `Permanent` is beyond rules.

    A handler that raises `Retry(after="30s")` gets another attempt after exactly that long.
    `timeout_factor` lengthens the timeout of the attempt that follows one that timed out.
    """

    def __init__(
        self,
        schedule: str | None = None,
        *,
        after: Duration | None = None,
        jitter: float = _JITTER,
        timeout_factor: float = 1.0,
    ) -> None:
        if schedule is not None and after is not None:
            raise BadInput(
                "Retry takes a schedule (a policy) or after= (raised by a handler), not both."
            )
        super().__init__()
        self._plan = _Plan(
            shape=_Table() if schedule is None else _Steps(_read_schedule(schedule)),
            jitter=_check_jitter(jitter),
            timeout_factor=_check_factor(timeout_factor, "timeout_factor"),
            after_ms=None if after is None else to_ms(after),
        )

    @classmethod
    def exponential(
        cls,
        base: Duration = "1s",
        cap: Duration = "60s",
        factor: float = 2,
        *,
        jitter: float = 0.2,
        timeout_factor: float = 1.0,
    ) -> Retry:
        """`base` times `factor` per attempt up to `cap`, jitter to both sides.

        The defaults wait 1, 2, 4 … 60 s ±20 %; 2^n seconds up to five minutes is
        `Retry.exponential("2s", "5m", jitter=0)`.
        """
        base_ms, cap_ms = to_ms(base), to_ms(cap)
        if not 0 < base_ms <= cap_ms:
            raise BadInput(
                f"exponential: base ({base!r}) must be above 0 and at most cap ({cap!r})."
            )
        shape = _Exponential(base_ms, cap_ms, _check_factor(factor, "factor"))
        return cls._of(
            _Plan(
                shape=shape,
                jitter=_check_jitter(jitter),
                symmetric=True,
                timeout_factor=_check_factor(timeout_factor, "timeout_factor"),
            )
        )

    @classmethod
    def polynomial(
        cls,
        unit: Duration = "5s",
        power: float = 2,
        *,
        jitter: float = _JITTER,
        timeout_factor: float = 1.0,
    ) -> Retry:
        """The attempt's number to `power`, times `unit`: 5, 20, 45 … seconds by default."""
        if not 0 <= power <= 10:
            raise BadInput(f"polynomial: power is a number from 0 to 10, not {power!r}.")
        return cls._of(
            _Plan(
                shape=_Polynomial(to_ms(unit), power),
                jitter=_check_jitter(jitter),
                timeout_factor=_check_factor(timeout_factor, "timeout_factor"),
            )
        )

    def on(self, error: type[BaseException] | str, schedule: str | Retry) -> Retry:
        """This policy, with another schedule for one kind of error."""
        if isinstance(schedule, str):
            steps = _Steps(_read_schedule(schedule))
            schedule = Retry._of(replace(self._plan, shape=steps, rules=()))
        if schedule._plan.after_ms is not None:
            raise BadInput('on() takes a schedule such as "5s 30s", not a Retry(after=…).')
        return self._with(_Rule((_name_of(error),), schedule))

    def never(self, *errors: type[BaseException] | str) -> Retry:
        """This policy, but these errors are never retried."""
        if not errors:
            raise BadInput("never() needs at least one error: .never(ValueError).")
        return self._with(_Rule(tuple(map(_name_of, errors)), None))

    @property
    def after_ms(self) -> int | None:
        """How long exactly until the next attempt, for a `Retry(after=…)`."""
        return self._plan.after_ms

    @property
    def timeout_factor(self) -> float:
        return self._plan.timeout_factor

    def decide(self, failure: Failure, attempt: int, max_attempts: int, draw: float) -> Decision:
        """What follows failed attempt number `attempt` (from 1); `draw` in [0, 1) is the jitter."""
        if failure.code == "permanent":
            return Decision(None, "permanent")
        rule = next((rule for rule in self._plan.rules if rule.fits(failure)), None)
        if rule is None and failure.kind != "transient":
            return Decision(None, "out_of_memory" if failure.kind == "memory" else "permanent")
        if rule is not None and rule.policy is None:
            return Decision(None, "never")
        if attempt >= max_attempts:
            return Decision(None, "attempts")
        if failure.code == "retry" and failure.retry_after_ms is not None:
            return Decision(failure.retry_after_ms)
        plan = self._plan if rule is None or rule.policy is None else rule.policy._plan
        return Decision(_delay_ms(plan, failure, attempt, draw))

    def __repr__(self) -> str:
        plan = self._plan
        usual = 0.2 if isinstance(plan.shape, _Exponential) else _JITTER
        extras = [
            f'after="{show_ms(plan.after_ms)}"' if plan.after_ms is not None else "",
            f"jitter={plan.jitter:g}" if plan.jitter != usual else "",
            f"timeout_factor={plan.timeout_factor:g}" if plan.timeout_factor != 1 else "",
        ]
        head = str(plan.shape)
        separator = "" if head.endswith("(") else ", "
        shown = ", ".join(extra for extra in extras if extra)
        return f"{head}{separator if shown else ''}{shown})" + "".join(map(self._show, plan.rules))

    def __str__(self) -> str:
        if self.after_ms is None:
            return repr(self)
        return f"The handler asked for another attempt in {show_ms(self.after_ms)}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Retry) and self._plan == other._plan

    def __hash__(self) -> int:
        return hash(self._plan)

    @classmethod
    def _of(cls, plan: _Plan) -> Retry:
        made = cls()
        made._plan = plan
        return made

    def _with(self, rule: _Rule) -> Retry:
        return Retry._of(replace(self._plan, rules=(*self._plan.rules, rule)))

    def _show(self, rule: _Rule) -> str:
        if rule.policy is None:
            return ".never(" + ", ".join(f'"{name}"' for name in rule.names) + ")"
        shape = rule.policy._plan.shape
        inherited = replace(self._plan, shape=shape, rules=())
        as_text = isinstance(shape, _Steps) and rule.policy._plan == inherited
        schedule = f'"{shape.text}"' if as_text and isinstance(shape, _Steps) else repr(rule.policy)
        return f'.on("{rule.names[0]}", {schedule})'


def _delay_ms(plan: _Plan, failure: Failure, attempt: int, draw: float) -> int:
    floor_ms = failure.retry_after_ms or 0
    # Jitter on top of the floor too: a fleet that was told "in 30 s" must not return as one.
    base_ms = max(plan.shape.ms_at(attempt, failure.code), floor_ms)
    spread = draw * 2 - 1 if plan.symmetric else draw
    return max(round(base_ms * (1 + plan.jitter * spread)), floor_ms)


def _read_schedule(schedule: str) -> tuple[int, ...]:
    steps = tuple(map(to_ms, schedule.split()))
    if not steps:
        raise BadInput(
            'The schedule is empty: write the delays apart by spaces, as in "5s 30s 2m".'
        )
    return steps


def _name_of(error: type[BaseException] | str) -> str:
    if isinstance(error, type) and issubclass(error, BaseException):
        error = error.__name__
    if not isinstance(error, str) or not error.isidentifier():
        raise BadInput(
            f"{error!r} names no error: use an exception class, the name of one, or a code such as"
            ' "rate_limit".'
        )
    if error in ("Exception", "BaseException"):
        raise BadInput(
            f'{error} is every error: Retry("5s 30s 2m") is the schedule for everything, and'
            " max_attempts=1 retries nothing."
        )
    return error


def _check_jitter(jitter: float) -> float:
    if not 0 <= jitter <= 1:
        raise BadInput(f"jitter is a share from 0 to 1, not {jitter!r}: 0.1 is up to 10 %.")
    return jitter


def _check_factor(factor: float, name: str) -> float:
    if not 1 <= factor <= 1_000:
        raise BadInput(f"{name} is a number from 1 to 1000, not {factor!r}.")
    return factor
