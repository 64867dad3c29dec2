"""The machine in lines: its processors, settings of the kernel, the engine's limit, one warning. Not here: memory."""

from tui.looks import Looks
from tui.panels.picture import Part, Picture, drawn
from tui.panels.pieces import plain, wrapped
from tui.snap import Facts, Snap
from tui.units import count, size


def host(snap: Snap, looks: Looks, width: int, height: int) -> Picture:
    """Nodes with a bar each, then what the kernel is set to; the last line is a warning when there is one."""
    found = snap.rows("cpu.nodes")
    room = max(height - 3, 1)
    lines: list[list[Part]] = [_node_line(node, looks, width) for node in found[:room]]
    if len(found) > room:  # more nodes than lines: all of them, without bars
        lines = _packed(found, width, room)
    lines += [settings(snap, "   " if width >= 54 else "  "), limits(snap)]
    for text in warnings(snap):
        lines += [[(plain(line), "warning")] for line in wrapped(text, width, "! ")]
    return drawn(lines, looks, width, height, _right(snap, found))


def host_line(snap: Snap) -> list[Part]:
    """The processors in a few words, for a place beside other numbers."""
    found = snap.rows("cpu.nodes")
    nodes = [f"node{node.text('node', '-')} {_util(node).strip()}" for node in found[:2]]
    nodes[:1] = [f"{name} {_ghz(found[0]).replace(' ', '')}" for name in nodes[:1]]
    slow = sorted({node.text("governor") for node in found} - {"", "performance"})
    return ["  ".join([*nodes, *(f"gov {name}" for name in slow[:1]), f"THP {snap.text('thp', '-')}"])]


def settings(snap: Snap, gap: str) -> list[Part]:
    load, temp = snap.num("cpu.load1"), snap.num("cpu.temp_c")
    heat = "" if temp is None else f"{gap}temp {temp:.0f}C"
    throttled = snap.flag("cpu.throttled")
    state: Part = ("  ! throttled", "bad") if throttled else (" ok", "good") if throttled is False else ""
    swappiness = "-" if (value := snap.num("swappiness")) is None else f"{value:.0f}"
    busy = "-" if load is None else f"{load:.1f}"
    return [f"THP {snap.text('thp', '-')}{gap}swappiness {swappiness}{gap}load {busy}{heat}", state]


def limits(snap: Snap) -> list[Part]:
    """What the engine takes of what it may take."""
    sizes = [snap.num(f"memory.{who}.rss_bytes") for who in ("api", "worker")]
    used = sum(found) if (found := [n for n in sizes if n is not None]) else None
    limit, quota = snap.num("memory.machine.limit"), snap.num("cpu.quota")
    of = "" if limit is None else f" of {size(limit)}"
    cpus = "" if quota is None else f"   quota {quota:.1f} cpus"
    restarts = snap.num("worker.restarts")
    again: Part = (f"restarts {count(restarts)}", "warning") if restarts else f"restarts {count(restarts)}"
    return [f"engine  mem {size(used)}{of}{cpus}   ", again]


def warnings(snap: Snap) -> list[str]:
    """What a person should read now, in the service's own words, the worst first."""
    return snap.texts("warnings")


def _node_line(node: Facts, looks: Looks, width: int) -> list[Part]:
    name = f"node{node.text('node', '-')}"
    bar = looks.bar(node.num("util"), 1.0, min(max(width - 34, 4), 22))
    return [f"{name:5} {bar} {_util(node)}  {_ghz(node)} {node.text('governor')}".rstrip()]


def _packed(nodes: list[Facts], width: int, room: int) -> list[list[Part]]:
    names = [f"node{node.text('node', '-')} {_util(node)}" for node in nodes]
    per_line = max(width // 14, 1)
    rows = [names[i : i + per_line] for i in range(0, len(names), per_line)]
    return [["".join(f"{name:14}" for name in row).rstrip()] for row in rows[:room]]


def _util(node: Facts) -> str:
    util = node.num("util")
    return f"{'-' if util is None else f'{100 * util:.0f}%':>4}"


def _ghz(node: Facts) -> str:
    mhz = node.num("mhz")
    return "- GHz" if mhz is None else f"{mhz / 1000:.1f} GHz"


def _right(snap: Snap, nodes: list[Facts]) -> str:
    cores, name = snap.num("cpu.cores"), snap.text("host", "-")
    per_node = {node.num("cpus") for node in nodes}
    each = next(iter(per_node)) if len(per_node) == 1 else None
    shape = f"{len(nodes)} x {count(each)}" if len(nodes) > 1 and each is not None else count(cores)
    return f"{name}  {shape} cores"
