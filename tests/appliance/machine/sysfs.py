"""A copy of the part of /sys and /proc that host tuning touches, for tests. Not here: tests."""

from pathlib import Path

from appliance.machine.tune import CPUS, THP, apply, plan, revert, settings
from appliance.machine.tune_notes import BOOT_ID, Change

TWO_CPUS = ("powersave", "schedutil")
GOVERNORS = "performance powersave schedutil"
GOVERNOR = f"{CPUS}/cpu{{}}/cpufreq/scaling_governor"


class Host:
    """A folder that looks like the /sys of a host, and the state file beside it."""

    def __init__(self, folder: Path, thp: str = "never", governors: tuple[str, ...] = TWO_CPUS) -> None:
        self.root = folder / "root"
        self.state = folder / "data" / "host-tune.json"
        self._seen: dict[Path, str] = {}
        self.put(THP, " ".join(f"[{w}]" if w == thp else w for w in ("always", "madvise", "never")) + "\n")
        for i, word in enumerate(governors):
            self.put(GOVERNOR.format(i), f"{word}\n")
            self.put(f"{CPUS}/cpu{i}/cpufreq/scaling_available_governors", GOVERNORS + "\n")
        self.put(BOOT_ID, "4d1f\n")
        self.put("sys/devices/system/node/node0/cpulist", "0-1\n")
        self.put("sys/devices/system/node/node0/meminfo", "Node 0 MemTotal:       16384 kB\n")

    def put(self, path: str, text: str) -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def settle(self) -> None:
        """Play the kernel's part: all words with the chosen one in brackets, a newline at the end of each file, and a
        file that was opened for writing but not written to keeps what it said."""
        thp = self.root / THP
        for path in [thp, *self.root.glob(f"{CPUS}/cpu*/cpufreq/scaling_governor")]:
            text = path.read_text().strip() or self._seen[path].strip()
            if path == thp and " " not in text:
                text = " ".join(f"[{word}]" if word == text else word for word in ("always", "madvise", "never"))
            self._seen[path] = text + "\n"
            path.write_text(self._seen[path])

    def bytes(self) -> dict[Path, bytes]:
        """Every file below the root as it stands."""
        self.settle()
        return {path: path.read_bytes() for path in self.root.rglob("*") if path.is_file()}

    def reverted(self) -> dict[str, str]:
        """Revert; the outcome of each note by its path."""
        self.settle()
        found = {u.change.path: u.outcome for u in revert(self.root, self.state)}
        self.settle()
        return found

    def values(self) -> dict[str, str]:
        self.settle()
        return {row.path: row.value for row in settings(self.root)}

    def tune(self, **wanted: str) -> list[Change]:
        done = apply(self.root, self.state, plan(settings(self.root, **wanted)))
        self.settle()
        return done
