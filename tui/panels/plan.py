"""A plan of the server in lines: numbers, stages, effects, reasons. Not here: making one (the server), the dialog."""

from tui.panels.pieces import Line, Piece, marked, wrapped
from tui.panels.split import Split, bar
from tui.snap import Facts
from tui.units import count, scale, seconds, size
from tui.words import fit

VERDICTS = {"OK": "good", "TIGHT": "warning", "PAGES": "warning", "NO": "bad", "BAD": "bad", "?": "dim"}
RESULTS = {"ok": "good", "warn": "warning", "fail": "bad"}
ORDER = {"fail": 0, "warn": 1, "ok": 2}
SPLIT = ("weights", "kv", "engine", "total")


def verdict(plan: Facts) -> Piece:
    """The word and its meaning."""
    word = plan.text("verdict") or plan.text("fit", "?")
    return word, VERDICTS.get(word, "warning")


def kv_types(facts: Facts) -> str:
    """`q8_0`, or both where they differ."""
    k, v = facts.text("type_k", "?"), facts.text("type_v", "?")
    return k if k == v else f"{k}/{v}"


def amounts(plan: Facts) -> dict[str, str]:
    """The parts and their sum, in one unit when none of them would vanish in it, else each in its own."""
    parts = {name: plan.num(f"{name}_bytes") for name in SPLIT}
    of = scale(*parts.values())
    if any(part and of.of(part) in ("0.00", "0.0", "0") for part in parts.values()):
        return {name: size(part) for name, part in parts.items()}
    return {name: f"{of.of(part)} {of.unit}" if name == "total" else of.of(part) for name, part in parts.items()}


def is_counted(plan: Facts) -> bool:
    """Whether its figures mean something: of a model that cannot be read there are none, and no time it would take."""
    return plan.has("total_bytes") or not plan.texts("errors")


def one_line(plan: Facts) -> Line:
    """`19.89 GiB = W 17.28 + KV 1.59 + c 1.02   budget 48.00 GiB   OK`."""
    if not is_counted(plan):
        return [("no figures   ", ""), verdict(plan)]
    part = amounts(plan)
    told = f"{part['total']} = W {part['weights']} + KV {part['kv']} + c {part['engine']}"
    return [(f"{told}   budget {size(plan.num('budget_bytes'))}   ", ""), verdict(plan)]


def live(plan: Facts, was: Facts, width: int) -> list[Line]:
    """The plan beside the editor; `was` is the plan of the text as it was opened, so that a change is seen."""
    lines: list[Line] = []
    for name in SPLIT:
        now, before = size(plan.num(f"{name}_bytes")), size(was.num(f"{name}_bytes"))
        label = f"kv {kv_types(plan)}" if name == "kv" else name
        row = f"{label:<10}{now:>11}"
        lines.append([(row, ""), (f"  was {before}", "working")] if was and now != before else row)
    lines.append(f"{'budget':<10}{size(plan.num('budget_bytes')):>11}")
    if budget := plan.num("budget_bytes"):
        parts = (plan.num(f"{name}_bytes") or 0.0 for name in ("weights", "kv", "engine"))
        lines.append(bar(Split(budget, *parts), min(width, 38)))
    lines.append([("verdict    ", ""), verdict(plan)])
    return lines + wrapped(plan.text("reason"), width)


def faults(plan: Facts, width: int) -> list[Line]:
    """Errors, then warnings, each over as many lines as it takes."""
    lines: list[Line] = []
    for text in plan.texts("errors"):
        lines += marked(wrapped(text, width, "x "), "bad")
    for text in plan.texts("warnings"):
        lines += marked(wrapped(text, width, "! "), "warning")
    return lines


def stages(plan: Facts, width: int) -> list[Line]:
    """The table of stages with estimate, limit and note, and the gap in service below it."""
    lines: list[Line] = [[(f"{'Stages':<10}{'estimate':>12}{'limit':>9}", "title")]]
    for number, row in enumerate(plan.rows("stages"), 1):
        most = row.num("limit_s")
        estimate, limit = seconds(row.num("estimate_s")), "none" if most is None else f"{most:.0f} s"
        told = f"  {number} {row.text('name', '?'):<6}{estimate:>12}{limit:>9}   {row.text('note')}"
        lines.append(fit(told, width).rstrip())
    return [*lines, gap(plan, " " * 4)]


def gap(plan: Facts, indent: str = "") -> str:
    """How long nobody answers."""
    if plan.flag("restart") is False:
        same = not plan.rows("changes")
        return indent + ("the same as what runs now" if same else "applied at once, without a stop")
    if not is_counted(plan):
        return indent + "cannot be started"
    return f"{indent}no service for about {seconds(plan.num('gap_s'))} (stop to check)"


def stages_short(plan: Facts, width: int) -> list[Line]:
    """Two lines of it for a small window."""
    rows = plan.rows("stages")
    told = "  ".join(f"{row.text('name', '?')} {seconds(row.num('estimate_s')).replace(' ', '')}" for row in rows)
    limits = "+".join(f"{row.num('limit_s') or 0:.0f}" for row in rows)
    stop = gap(plan).replace(" (stop to check)", "")
    return [fit(told, width).rstrip(), fit(f"{stop}, limits {limits} s", width).rstrip()]


def rollback(plan: Facts, width: int) -> list[Line]:
    """What happens when a stage fails; the server's own words say it best."""
    to, text = plan.text("rollback.name"), plan.text("rollback.text")
    how = f" ({text})" if text else ""
    lines = wrapped(f"If a stage fails: roll back to {to}{how}.", width) if to else []
    if "fallback" in text:
        return lines
    first = "If that fails too" if to else "If a stage fails"
    return lines + wrapped(f"{first}: start the profile 'fallback'. The queue is kept.", width)


def effects(plan: Facts, width: int) -> list[Line]:
    """One row per field that differs: from, to, and what it does."""
    rows = plan.rows("changes")
    wide = width >= 100
    field, value = (20, 24) if wide else (15, 14)
    header = fit(f"{'FIELD':<{field}} {'FROM':<{value}} {'TO':<{value}} EFFECT", width).rstrip()
    lines: list[Line] = [[(header, "title")]]
    for row in rows:
        old, new = _value(row, "from"), _value(row, "to")
        told = f"{fit(row.text('key', '?'), field)} {fit(old, value)} {fit(new, value)} {row.text('effect')}"
        lines.append(fit(told, width).rstrip())
    return lines if rows else ["Nothing differs."]


def _value(row: Facts, key: str) -> str:
    value = row.get(key)
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    return "-" if value is None else row.text(key, str(value))


def requests(plan: Facts) -> str:
    """What becomes of the requests that are there now."""
    running, waiting = plan.num("requests.running") or 0, plan.num("requests.waiting") or 0
    if plan.flag("restart") is False:
        return f"Requests: {count(running)} running and {count(waiting)} waiting go on untouched."
    limit = plan.num("requests.held_limit")
    most = f" (limit {count(limit)})" if limit is not None else ""
    return f"Requests: {count(running)} running will be drained, {count(waiting)} waiting will be held{most}."


def checks(plan: Facts, width: int) -> list[Line]:
    """The planner's questions, each with its answer and what it was answered from; those that failed come first."""
    rows = sorted(plan.rows("checks"), key=lambda row: ORDER.get(row.text("result"), 1))
    long = min(max((len(row.text("text")) for row in rows), default=0), max(20, width * 45 // 100)) + 2
    lines: list[Line] = []
    for row in rows:
        result = row.text("result", "?")
        pieces: list[Piece] = [(fit(row.text("text", "?"), long), ""), (f"{result:<6}", RESULTS.get(result, "warning"))]
        lines.append([*pieces, (fit(row.text("detail"), max(0, width - long - 6)).rstrip(), "")])
    return lines


def passed(plan: Facts) -> str:
    rows = plan.rows("checks")
    return f"{sum(row.text('result') != 'fail' for row in rows)}/{len(rows)} pass"


def spare(plan: Facts) -> str:
    """`28.1 GiB spare`, or how much is missing."""
    left = plan.num("spare_bytes")
    if left is None:
        return ""
    return f"{size(left)} spare" if left >= 0 else f"{size(-left)} missing"
