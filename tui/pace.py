"""How often the service is asked: what the user chose, and slower by itself on a slow terminal. Not here: asking."""

from collections.abc import Mapping

RATES = (0.5, 1.0, 2.0, 5.0, 10.0)
LATE_S = 0.5
LATE_TICKS = 3
BUSY_SHARE = 0.5  # of the tick's time in this process: then it is us, not the terminal
FORGIVE_S = 60.0


def usual_rate(env: Mapping[str, str]) -> float:
    """Once a second here, every two seconds over SSH."""
    return 2.0 if env.get("SSH_CONNECTION") or env.get("SSH_TTY") else 1.0


class Pace:
    """`period_s` is the time between two questions; `slowed` says when it is longer than the user chose."""

    def __init__(self, chosen_s: float) -> None:
        self.chosen_s = chosen_s
        self.is_paused = False
        self._factor = 1.0
        self._late = 0
        self._calm_s = 0.0

    @property
    def period_s(self) -> float:
        return min(self.chosen_s * self._factor, max(RATES[-1], self.chosen_s))

    @property
    def slowed(self) -> str:
        """`SLOW 5s` while the terminal does not keep up, else empty."""
        return f"SLOW {self.period_s:g}s" if self.period_s > self.chosen_s else ""

    def choose(self, seconds: float) -> None:
        """The user's own rate; it begins without the slowing of before."""
        self.chosen_s, self._factor, self._late = seconds, 1.0, 0

    def step(self, by: int) -> None:
        """One rate longer or shorter."""
        nearest = min(range(len(RATES)), key=lambda i: abs(RATES[i] - self.chosen_s))
        self.choose(RATES[min(max(nearest + by, 0), len(RATES) - 1)])

    def tick(self, late_s: float, took_s: float, cpu_s: float) -> None:
        """Tell how much too late a tick came, in how long a time, with how much work of this process in it.

        A terminal that does not read blocks the loop (Textual's writer holds 30 writes and then waits), so three late
        ticks in a row without much work of our own mean a slow link: the period doubles. After a calm minute it halves.
        """
        if late_s > LATE_S and cpu_s < BUSY_SHARE * max(took_s, 0.001):
            self._late, self._calm_s = self._late + 1, 0.0
            if self._late >= LATE_TICKS:
                self._late = 0
                if self.period_s < RATES[-1]:
                    self._factor *= 2
            return
        self._late = 0
        self._calm_s += took_s
        if self._calm_s >= FORGIVE_S and self._factor > 1:
            self._factor, self._calm_s = self._factor / 2, 0.0
