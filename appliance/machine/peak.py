"""The most private memory that this process held, looked at 20 times a second. Not here: what was planned.

Private is what counts against a container's limit and cannot be given back: anonymous memory, in swap or not, and
locked pages. The kernel's own peaks (VmHWM, a cgroup's) count file pages too and prove nothing.
"""

import re
import threading
from pathlib import Path
from types import TracebackType

from appliance.machine.kernel_files import read_text

EVERY_S = 0.05


def private_bytes(root: Path = Path("/"), pid: str = "self") -> int:
    """Private memory of a process now, 0 for one that is gone."""
    found = re.findall(r"^(?:RssAnon|VmSwap|VmLck):\s+(\d+) kB", read_text(root / f"proc/{pid}/status"), re.M)
    return 1024 * sum(map(int, found))


class Peak:
    """`with Peak() as peak: ...`; `n_bytes` is the most so far."""

    def __init__(self) -> None:
        self.n_bytes = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="peak", daemon=True)

    def look(self) -> None:
        self.n_bytes = max(self.n_bytes, private_bytes())

    def _watch(self) -> None:
        while not self._over.wait(EVERY_S):
            self.look()

    def __enter__(self) -> "Peak":
        self.look()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        self.look()
