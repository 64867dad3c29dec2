"""The running swap in lines: strip, progress, held requests, log, the way back. Not here: a swap's end (report.py)."""

from dataclasses import dataclass, field

from tui.looks import Looks
from tui.panels.pieces import Line, wrapped
from tui.panels.stages import STAGES, brief, cells, strip
from tui.snap import Facts
from tui.units import clock, count, elapsed, percent, rate, scale, seconds, size
from tui.words import fit

WIDE = 92
TALL = 20
COMMAND_LINE = "the command line's settings"
DOING = {
    "plan": "plan: does it fit?",
    "drain": "drain: running requests end, new ones are held",
    "stop": "stop: the old engine leaves",
    "start": "start: the new engine comes up",
    "warm": "warm: reading the weights",
    "check": "check: the first answer",
}


@dataclass(frozen=True)
class Around:
    """What the swap's own document does not hold: the server's clock, the queue's limit, the memory."""

    now: float | None = None
    held_limit: int | None = None
    memory: Facts = field(default_factory=Facts)


def title(swap: Facts) -> str:
    return f"Swap {swap.text('id', '?')}  {swap.text('from', COMMAND_LINE)} -> {swap.text('to', '?')}"


def old_name(swap: Facts) -> str:
    """What served before, with its revision; a service may have been started without a profile."""
    name = swap.text("from")
    return f"{name} rev {swap.text('from_rev', '?')}" if name else COMMAND_LINE


def age(swap: Facts, now: float | None) -> float | None:
    """Seconds since it began by the server's clock, never by ours."""
    started, ended = swap.num("started"), swap.num("ended")
    until = ended if ended is not None else now
    if started is not None and until is not None:
        return max(0.0, until - started)
    return swap.num("elapsed_s")


def right_of_title(swap: Facts, now: float | None, width: int) -> str:
    taken = age(swap, now)
    told = f"elapsed {elapsed(taken)}"
    if width < WIDE:
        return told
    by = f" by {swap.text('by')}" if swap.text("by") else ""
    return f"started {clock(swap.num('started'))}{by}  {told}"


def running(swap: Facts, around: Around, width: int, height: int, looks: Looks) -> list[Line]:
    """The body of the panel in at most `height` lines of `width` cells; the oldest lines of the log give way first."""
    lines: list[Line] = ["", *strip(cells(swap, around.now), width), ""]
    lines += [*_progress(swap, around, width, looks), ""]
    lines += [*_held(swap, around, width >= WIDE), *_memory(around, width >= WIDE)]
    tail = _tail(swap, width, height)
    room = height - len(lines) - len(tail) - 2
    log = [f"{clock(line.num('time'))}  {line.text('text')}" for line in swap.rows("log")]
    if log and room > 0:
        lines += ["", *(fit(line, width).rstrip() for line in log[-room:])]
    return [*lines, "", *tail][:height]


def _progress(swap: Facts, around: Around, width: int, looks: Looks) -> list[Line]:
    rescue = next((row for row in swap.rows("rescue") if row.text("state") == "running"), None)
    if rescue is not None:
        step = f" ({rescue.text('stage')})" if rescue.text("stage") else ""
        return [[(f"{rescue.text('why', 'rescue')}: {rescue.text('profile', '?')} is started{step}", "working")]]
    name = swap.text("stage")
    stage = next((row for row in swap.rows("stages") if row.text("name") == name), Facts())
    place = f"{STAGES.index(name) + 1} of {len(STAGES)}  " if name in STAGES else ""
    note = stage.text("progress.note") or stage.text("detail")
    what = place + DOING.get(name, name or "accepted") + (f"; {note}" if note else "")
    is_aborting = swap.flag("is_aborting")
    lines: list[Line] = [[("ABORTING  ", "warning"), (what, "")] if is_aborting else [(what, "working")]]
    lines += _counted(stage.at("progress"), width, looks)
    limit, started = stage.num("limit_s"), stage.num("started")
    if limit and started is not None and around.now is not None:
        spent = max(0.0, around.now - started)
        late = "warning" if spent > 0.8 * limit else "dim"
        lines.append([(f"limit {brief(limit)}  {looks.bar(spent, limit, 12)}", late)])
    return lines


def _counted(going: Facts, width: int, looks: Looks) -> list[Line]:
    """`[####----]  65%  11.2 / 17.28 GiB  1,040 MB/s  ETA 6 s`, as much of it as is known."""
    done, total, unit = going.num("done"), going.num("total"), going.text("unit")
    if done is None:
        return []
    if unit == "bytes":
        of = scale(done, total)
        amount = f"{of.of(done)} / {of.of(total)} {of.unit}" if total else size(done)
    else:
        amount = f"{count(done)} / {count(total)} {unit}" if total else f"{count(done)} {unit}"
    eta = going.num("eta_s")
    told = "  ".join(filter(None, [amount, rate(going.num("rate"), unit), f"ETA {seconds(eta)}" if eta else ""]))
    if not total:
        return [told]
    share = f" {percent(min(max(done / total, 0.0), 1.0)):>4}  "
    long = max(8, min(48, width - len(told) - len(share)))
    return [[(looks.bar(done, total, long), "working"), (share + told, "")]]


def _held(swap: Facts, around: Around, is_wide: bool) -> list[Line]:
    refused, waited = swap.num("held.refused") or 0, swap.num("held.oldest_ms")
    of = f"/{around.held_limit}" if around.held_limit else ""
    parts = [f"held requests {count(swap.num('held.n') or 0)}{of}"]
    parts.append("none waits" if waited is None else f"oldest {seconds(waited / 1000)}")
    if is_wide:
        parts.append("new requests are held")
    sent = (f"429 sent: {count(refused)}", "warning" if refused else "")
    return [[("   ".join(parts) + "   ", ""), sent]]


def _memory(around: Around, is_wide: bool) -> list[Line]:
    memory = around.memory
    named = [("engine", "worker.rss_bytes"), ("page cache", "machine.cached")] if is_wide else []
    named += [("free", "machine.available"), ("swap", "machine.swap_used")]
    told = "   ".join(f"{name} {size(memory.num(path))}" for name, path in named if memory.has(path))
    return [f"memory   {told}"] if told else []


def _tail(swap: Facts, width: int, height: int) -> list[Line]:
    lines: list[Line] = [f"Rollback target: {old_name(swap)}"]
    if height < 14:
        return lines
    if height > TALL:
        lines.append("")
    lines += wrapped("This runs on the server: you may close this window or lose the SSH session, it goes on.", width)
    return lines + wrapped(abort_cost(swap), width)


def abort_cost(swap: Facts) -> str:
    """What an abort would do at this moment, in words."""
    if is_on_the_way_back(swap):
        return "What runs now is the way back: it cannot be aborted; requests stay held meanwhile."
    if is_free_to_abort(swap):
        return "An abort now costs nothing: the old engine still runs and goes on."
    return f"An abort now stops the new engine and starts {old_name(swap)} again; requests stay held meanwhile."


def is_on_the_way_back(swap: Facts) -> bool:
    """Whether a stage has failed or an abort was asked for, and the old engine or the fallback comes up again."""
    return bool(swap.rows("rescue"))


def is_free_to_abort(swap: Facts) -> bool:
    """Whether the old engine still runs: nothing was stopped yet."""
    return swap.text("stage", "plan") in ("plan", "drain")
