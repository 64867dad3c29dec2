"""Who has the machine's memory, as a bar of letters and as numbers. Not here: which pages of which layer (5 Memory).

    [WWKKc=========oo...................]      W weights  K KV cache  c engine  = other cache  o system  . free

The letters are worked out of what the service reports: of its processes the anonymous and the resident bytes, of the
machine total, free and page cache. Weights that were repacked lie in the worker's anonymous memory; mapped ones are the
pages of the file that the worker has touched, and so a part of the page cache.
"""

from dataclasses import dataclass

from tui.looks import Looks
from tui.panels.host import host_line, warnings
from tui.panels.picture import ROOMY, Part, Picture, drawn, mark
from tui.snap import Snap
from tui.units import percent, scale, size

GIB = 1 << 30
LETTERS = (("W", "part1"), ("K", "part2"), ("c", "part3"), ("=", "part4"), ("o", "part5"), (".", "dim"))
PAGING_FAULTS_S = 50  # from here on the answer waits for the disk, see "majflt" on the Help screen


@dataclass(frozen=True)
class Parts:
    """Bytes that lie in memory; None is not told."""

    weights: float | None
    kv: float | None
    engine: float | None
    cache: float | None
    other: float | None
    free: float | None
    total: float | None

    def row(self) -> list[float]:
        """In the order of LETTERS, unknown ones as nothing."""
        return [part or 0.0 for part in (self.weights, self.kv, self.engine, self.cache, self.other, self.free)]


def memory_parts(snap: Snap) -> Parts:
    """The split of the machine's memory, as far as the document tells it."""
    total, free, cached = (snap.num(f"memory.machine.{name}") for name in ("total", "free", "cached"))
    anon, rss = snap.num("memory.worker.anon_bytes"), snap.num("memory.worker.rss_bytes")
    api = snap.num("memory.api.anon_bytes") or 0.0
    planned, reserved = snap.num("worker.weights_bytes"), snap.num("worker.kv_bytes")
    if anon is None:  # no worker: nothing of it lies in memory, unless the service does not know
        known = 0.0 if snap.has("memory.machine") and not snap.has("worker.pid") else None
        weights = kv = known
        engine, cache = api or None, cached
    else:
        is_packed = snap.text("model.load_mode") in ("resident", "stream")
        mapped = max((rss or anon) - anon, 0.0)
        weights = None if planned is None else min(planned, anon if is_packed else mapped)
        packed = (weights or 0.0) if is_packed else 0.0
        kv = None if reserved is None else min(reserved, anon - packed)
        engine = anon - packed - (kv or 0.0) + api
        cache = None if cached is None else max(cached - (0.0 if is_packed else weights or 0.0), 0.0)
    other = None
    if total is not None and free is not None and cached is not None:
        other = max(total - free - cached - (anon or 0.0) - api, 0.0)
    return Parts(weights, kv, engine, cache, other, free, total)


def cells(parts: list[float], total: float, width: int) -> list[int]:
    """How many of `width` cells each part gets: rounded so that the sum is right, and none that exists has no cell."""
    if total <= 0 or width <= 0:
        return [0] * len(parts)
    scaled = [min(max(part, 0.0) / total, 1.0) * width for part in parts]
    if sum(scaled) > width:  # the facts were not read at one moment
        scaled = [share * width / sum(scaled) for share in scaled]
    found = [int(share) for share in scaled]
    by_rest = sorted(range(len(parts)), key=lambda i: found[i] - scaled[i])
    for i in by_rest[: max(round(sum(scaled)) - sum(found), 0)]:
        found[i] += 1
    for i, part in enumerate(parts):
        largest = max(range(len(found)), key=found.__getitem__)
        if part > 0 and found[i] == 0 and found[largest] > 1:
            found[i], found[largest] = 1, found[largest] - 1
    return found


def bar(parts: Parts, width: int) -> list[Part]:
    """The bar in brackets, `width` cells in all."""
    if not parts.total or parts.free is None:
        return [f"[{'-':^{max(width - 2, 0)}}]"]
    shares = cells(parts.row(), parts.total, max(width - 2, 0))
    gap = " " * (max(width - 2, 0) - sum(shares))
    letters: list[Part] = [(letter * n, meaning) for (letter, meaning), n in zip(LETTERS, shares, strict=True) if n]
    return ["[", *letters, gap, "]"]


def memory(snap: Snap, looks: Looks, width: int, height: int) -> Picture:
    """Six lines of a panel of its own."""
    parts, planned, old = memory_parts(snap), snap.num("worker.weights_bytes"), mark(snap)
    kv, used = snap.num("worker.kv_bytes"), snap.num("memory.kv_used_bytes")
    unit = scale(planned, kv, parts.engine)  # one for the engine's three, so that they compare by eye

    def mine(n: float | None) -> str:
        return f"{unit.of(n).replace(',', ''):>6} {unit.unit}" if n is not None else f"{'-':>6}    "

    cache, free, is_resident = (" cache", " free ", " resident") if width >= ROOMY else ("", "", "")
    in_use = f"used {unit.of(used)}  {percent(used, kv)}" if width >= ROOMY else f"{percent(used, kv)} used"
    lines: list[list[Part]] = [
        bar(parts, width),
        [("W", "part1"), f" weights{mine(planned)}  {resident(parts, planned)}{old if planned else ''}{is_resident}"],
        [("K", "part2"), f" kv     {mine(kv)}  {in_use}"],
        [("c", "part3"), f" engine {mine(parts.engine)} ", ("=", "part4"), f"{cache}{_gib(parts.cache, 5, 1)} GiB"],
        [("o", "part5"), f" system {_gib(parts.other, 6)} GiB ", (".", "dim"), f"{free}{_gib(parts.free, 5, 1)} GiB"],
        swap_and_paging(snap, width),
    ]
    return drawn(lines, looks, width, height, whole(snap))


def memory_strip(snap: Snap, looks: Looks, width: int, height: int) -> Picture:
    """Three lines for 80 columns: the bar, the numbers in GiB, what waits for the disk, or a warning."""
    parts, planned = memory_parts(snap), snap.num("worker.weights_bytes")
    kv, used = snap.num("worker.kv_bytes"), snap.num("memory.kv_used_bytes")
    numbers: list[Part] = [
        ("W", "part1"), f" {_gib(planned)} {resident(parts, planned).strip()} resident  ",
        ("K", "part2"), f" {_gib(kv)} {percent(used, kv)} used  ", ("c", "part3"), f" {_gib(parts.engine)}  ",
        ("=", "part4"), f" {_gib(parts.cache)}  ", ("o", "part5"), f" {_gib(parts.other)}  ",
        (".", "dim"), f" {_gib(parts.free)}",
    ]  # fmt: skip
    flow: list[Part] = [*swap_and_paging(snap, 0), "  ", *host_line(snap)]
    said: list[list[Part]] = [[(f"! {text}", "warning")] for text in warnings(snap)[:1]]
    return drawn([bar(parts, width), numbers, *(said or [flow])], looks, width, height, whole(snap))


def whole(snap: Snap) -> str:
    """The machine's memory, and the container's limit where it is the smaller one."""
    total, limit = snap.num("memory.machine.total"), snap.num("memory.machine.limit")
    if limit is not None and (total is None or limit < total):
        return f"limit {_gib(limit)} of {size(total, 'GiB')}"
    return size(total, "GiB")


def resident(parts: Parts, planned: float | None) -> str:
    """The share of the weights that lies in memory, six cells."""
    if parts.weights is None or not planned:
        return f"{'-':>6}"
    return f"{100 * parts.weights / planned:5.1f}%"


def swap_and_paging(snap: Snap, width: int) -> list[Part]:
    """Swap space in GiB, pages and bytes a second that had to wait for the disk; what is bad is marked."""
    used, total = snap.num("memory.machine.swap_used"), snap.num("memory.machine.swap_total")
    faults, disk = snap.num("memory.major_faults_s"), snap.num("memory.disk_read_s")
    is_paging = faults is not None and faults > PAGING_FAULTS_S
    swap, flow = f"swap {_short(used)}/{_short(total)}", f"majflt {_whole(faults)}/s"
    words: list[Part] = [(f"!{swap}", "warning") if used else swap, (f"!{flow}", "warning") if is_paging else flow]
    words.append(f"disk {_whole(None if disk is None else disk / 1e6)} MB/s")
    length = sum(len(word if isinstance(word, str) else word[0]) for word in words)
    if 0 < width < length + 2 and not used:
        return [words[1], " ", words[2]]
    gap = " " * max(1, min(3, (width - length) // 2))
    return [words[0], gap, words[1], gap, words[2]]


def _short(n: float | None) -> str:
    return _gib(n, digits=1).removesuffix(".0")


def _whole(n: float | None) -> str:
    return "-" if n is None else f"{n:.0f}"


def _gib(n: float | None, width: int = 0, digits: int = 2) -> str:
    return f"{'-' if n is None else f'{n / GIB:.{digits}f}':>{width}}"
