"""How a worker shares its claims between the primary and the retry lane."""

from dataclasses import dataclass
from typing import Literal

from outlast.core.errors import BadInput
from outlast.core.states import Lane

Pressure = Literal["normal", "warning", "critical"]


@dataclass(frozen=True, slots=True)
class Lanes:
    """The retry lane's share of the claims, which falls as more retries wait: a storm of retries
    must not keep new work out."""

    share: float = 0.30
    warning: int = 1_000
    warning_share: float = 0.20
    critical: int = 5_000
    critical_share: float = 0.10

    def __post_init__(self) -> None:
        for name in ("share", "warning_share", "critical_share"):
            _percent(getattr(self, name), name)
        if not 0 < self.warning < self.critical:
            raise BadInput(
                f"warning ({self.warning!r}) must be above 0 and below critical"
                f" ({self.critical!r}): they count waiting retries.",
                field="warning",
            )

    def pressure(self, waiting: int) -> Pressure:
        """How hard the ready retries of a queue press."""
        if waiting >= self.critical:
            return "critical"
        return "warning" if waiting >= self.warning else "normal"

    def share_at(self, waiting: int) -> float:
        """The retry lane's share while that many retries are ready."""
        shares = {
            "normal": self.share,
            "warning": self.warning_share,
            "critical": self.critical_share,
        }
        return shares[self.pressure(waiting)]


class LaneTurner:
    """Whose turn it is, pick by pick: evenly spread, and exact over any 100 picks in a row.

    Each pick adds the share in percent to a balance; the retry lane's turn is when it reaches 100,
    which is then taken off. The balance repeats after 100 picks, hence exact over any 100.
    """

    def __init__(self, share: float = 0.30) -> None:
        self._percent = _percent(share, "share")
        self._balance = 0

    def set_share(self, share: float) -> None:
        """Another share from the next pick on; what the retry lane had saved up is kept."""
        self._percent = _percent(share, "share")

    def peek(self, n: int) -> list[Lane]:
        """The lanes of the next `n` picks, without taking them."""
        lanes: list[Lane] = []
        balance = self._balance
        for _ in range(n):
            balance += self._percent
            lanes.append("retry" if balance >= 100 else "primary")
            balance %= 100
        return lanes

    def advance(self, n: int) -> None:
        """`n` picks were taken."""
        self._balance = (self._balance + n * self._percent) % 100


def _percent(share: float, name: str) -> int:
    percent = share * 100
    if not 0 <= percent <= 100 or abs(percent - round(percent)) > 1e-6:
        raise BadInput(
            f"{name} is a share in whole percent from 0 to 1, not {share!r}: 0.3 is 30 %.",
            field=name,
        )
    return round(percent)
