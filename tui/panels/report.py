"""How a swap ended, in words: on the panel that stays until it is closed, and as a text. Not here: the strip."""

from tui.panels.pieces import Line, marked, text_of, wrapped
from tui.panels.stages import cells, strip
from tui.panels.swap import age, old_name, title
from tui.snap import Facts
from tui.units import clock, count, seconds
from tui.words import fit

FAILED = ("rolled_back", "fallback", "crashed", "refused", "cut")
HEADS = {
    "ready": "ready",
    "applied": "applied without a stop",
    "unchanged": "nothing to do",
    "aborted": "aborted",
    "refused": "REFUSED",
    "rolled_back": "FAILED, rolled back",
    "fallback": "FAILED, fallback serves",
    "crashed": "FAILED, no engine",
    "cut": "cut short",
}


def is_failed(swap: Facts) -> bool:
    return swap.text("state") in FAILED


def is_aborted(swap: Facts) -> bool:
    """Whether a person ended it, so that nothing is at fault."""
    return swap.text("reason.code") == "aborted"


def is_running(swap: Facts) -> bool:
    return swap.text("state") == "running"


def head(swap: Facts) -> str:
    word = HEADS.get(swap.text("state"), swap.text("state", "?"))
    if is_aborted(swap):
        word = word.replace("FAILED", "ABORTED")
    return f"Swap {swap.text('id', '?')} {word}" if is_failed(swap) else f"{title(swap)}  {word}"


def ended(swap: Facts, width: int, height: int) -> list[Line]:
    """The report in at most `height` lines: the log gives way first, then the engine's last lines."""
    lines: list[Line] = ["", *strip(cells(swap), width), ""]
    if swap.has("reason"):
        lines += [*why(swap, width), ""]
    lines += wrapped(happened(swap), width, "What happened: ")
    lines += [*wrapped(held(swap), width, "Requests: "), ""]
    if advice := _advice(swap):
        lines += [*wrapped(advice, width, "Try: "), ""]
    last = swap.texts("engine_lines") if is_failed(swap) else []
    if last and (room := height - len(lines) - 1) > 0:
        shown = [fit(f"  {line}", width).rstrip() for line in last[-min(room, 5) :]]
        lines += [[("Last engine lines:", "title")], *shown]
    log = [f"{clock(line.num('time'))}  {line.text('text')}" for line in swap.rows("log")]
    if lines[-1] != "":
        lines.append("")
    if log and (room := height - len(lines)) > 1:
        lines += [fit(line, width).rstrip() for line in log[-room:]]
    return lines[:height]


def _advice(swap: Facts) -> str:
    """What to try; after an abort there is nothing to mend."""
    return "" if is_aborted(swap) else swap.text("reason.advice")


def why(swap: Facts, width: int) -> list[Line]:
    """The stage, the reason in words, its code."""
    is_abort = is_aborted(swap)
    stage, code = swap.text("reason.stage"), "" if is_abort else swap.text("reason.code")
    where = f"{stage} failed: " if stage and not is_abort else ""
    when = f" in {stage}" if stage and is_abort else ""
    told = f"{where}{swap.text('reason.message', 'no reason was given')}{when}{f' ({code})' if code else ''}"
    return marked(wrapped(told, width, "Why: "), "warning" if is_abort else "bad")


def happened(swap: Facts) -> str:
    """One sentence on who serves now, and how long nobody did."""
    state, new = swap.text("state"), swap.text("to", "?")
    old = old_name(swap)
    gap = f" No service for {seconds(swap.num('gap_s'))}." if swap.num("gap_s") else ""
    rescues = swap.rows("rescue")
    failed = "".join(_failed(row) for row in rescues if row.text("state") == "failed")
    if state == "applied":
        return f"only settings of serving differ, so {new} took over without a stop."
    if state == "ready":
        took = " and took the held requests" if swap.num("held.kept") else ""
        return f"{new} serves{took}.{gap}"
    if state == "unchanged":
        return f"{new} served already with this very text."
    if state == "refused":
        return f"nothing was stopped, {old} goes on serving."
    if state == "aborted" and not rescues:
        return f"aborted before anything was stopped, {old} goes on serving."
    if state in ("aborted", "rolled_back"):
        return f"{old} was started again and is READY.{gap}"
    if state == "cut":
        return f"the server itself ended in the middle; it started again on its own.{gap}"
    if state == "fallback":
        serves = next((row.text("profile") for row in rescues if row.text("state") == "ok"), "fallback")
        return f"the profile '{serves}' serves now and the service is DEGRADED.{failed}{gap}"
    return f"no engine runs.{failed} The queue is kept; new requests get 503 with Retry-After. S starts it again."


def _failed(rescue: Facts) -> str:
    why_, to = rescue.text("why", "rescue"), rescue.text("profile", "?")
    return f" The {why_} to {to} failed: {rescue.text('reason', 'no reason was given')}."


def held(swap: Facts) -> str:
    refused = swap.num("held.refused") or 0
    more = f", {count(refused)} refused with 429" if refused else ""
    return f"{count(swap.num('held.kept') or 0)} kept, {count(swap.num('held.lost') or 0)} lost{more}."


def report(swap: Facts, host: str = "") -> str:
    """The text for a clipboard, a file, a ticket: everything the document holds, nothing cut."""
    began = clock(swap.num("started"), "%Y-%m-%d %H:%M:%S")
    lines: list[Line] = [f"Colibri: {head(swap)}{f' on {host}' if host else ''}"]
    lines.append(f"{title(swap)} rev {swap.text('to_rev', '?')}, {began}, by {swap.text('by', 'nobody named')}")
    if note := swap.text("note"):
        lines.append(f"note: {note}")
    lines += [f"took {seconds(age(swap, None))}, no service for {seconds(swap.num('gap_s') or 0)}", ""]
    lines += [_row(stage, stage.text("name", "?"), stage.text("detail")) for stage in swap.rows("stages")]
    for rescue in swap.rows("rescue"):
        lines.append(_row(rescue, rescue.text("why", "?"), f"{rescue.text('profile')} {rescue.text('reason')}"))
    lines.append("")
    if swap.has("reason"):
        lines += why(swap, 110)
    lines += [f"What happened: {happened(swap)}", f"Requests: {held(swap)}"]
    if advice := _advice(swap):
        lines.append(f"Try: {advice}")
    log = [f"  {clock(line.num('time'))}  {line.text('text')}" for line in swap.rows("log")]
    last = [f"  {line}" for line in swap.texts("engine_lines")]
    for name, block in (("Log:", log), ("Last engine lines:", last)):
        if block:
            lines += ["", name, *block]
    return text_of(lines) + "\n"


def _row(stage: Facts, name: str, detail: str) -> str:
    took = seconds(stage.num("took_s")) if stage.has("took_s") else ""
    limit = f"limit {seconds(stage.num('limit_s'))}" if stage.has("limit_s") else ""
    return f"  {name:8} {stage.text('state', '?'):8} {took:>12}  {limit:16} {detail}"
