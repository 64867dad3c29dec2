"""Profiles in lines: rows of the list, details of one, why it can be swapped to or not. Not here: the screen."""

from collections.abc import Sequence

from tui.panels.pieces import Line, wrapped
from tui.panels.plan import checks, faults, gap, kv_types, one_line, passed, spare, verdict
from tui.snap import Facts
from tui.units import count, day, percent, size, speed
from tui.words import fit

Columns = Sequence[tuple[str, str, int]]  # key, heading, width

STATES = {"active": "ACTIVE", "valid": "valid", "errors": "errors", "draft": "draft"}


# The columns by window width, the model's taking what is left; in a narrow window the numbers stay.
WIDE = (("name", "NAME", 13), ("model", "MODEL", 0), ("ctx", "CTX", 7), ("slots", "SLOTS", 5), ("threads", "THR", 4),
        ("kv", "KV", 6), ("fit", "FIT", 5), ("state", "STATE", 12))  # fmt: skip
SMALL = (("name", "NAME", 13), ("model", "MODEL", 0), ("ctx", "CTX", 7), ("threads", "THR", 4), ("kv", "KV", 5),
         ("fit", "FIT", 5), ("state", "STATE", 12))  # fmt: skip
TINY = (("name", "NAME", 0), ("ctx", "CTX", 7), ("fit", "FIT", 5), ("state", "STATE", 12))


def columns(width: int) -> Columns:
    """What fits beside each other in `width` cells, with one cell between two columns."""
    chosen = WIDE if width >= 78 else SMALL if width >= 66 else TINY
    fixed = 2 + sum(cells for _, _, cells in chosen) + len(chosen)
    rest = max(8, width - fixed)
    return [("mark", " ", 2), *((key, head, cells or rest) for key, head, cells in chosen)]


def row(profile: Facts) -> dict[str, tuple[str, str]]:
    """The cells of one profile by column, each with its meaning."""
    broken = profile.text("state") in ("errors", "")
    word, meaning = verdict(profile)
    return {
        "mark": (" *" if profile.text("state") == "active" else "", "good"),
        "name": (profile.text("name", "?"), ""),
        "model": ("(file has errors)", "dim") if broken else (model_name(profile), ""),
        "ctx": ("-" if broken else _number(profile, "ctx_size"), ""),
        "slots": ("-" if broken else _number(profile, "parallel"), ""),
        "threads": ("-" if broken else _number(profile, "threads"), ""),
        "kv": ("-" if broken else kv_types(profile), ""),
        "fit": (word, meaning),
        "state": state(profile),
    }


def _number(profile: Facts, key: str) -> str:
    value = profile.num(key)
    return "auto" if value in (None, 0) else f"{value:.0f}"


def state(profile: Facts) -> tuple[str, str]:
    """The last column: what the file is like."""
    word, errors = profile.text("state", "?"), profile.whole("n_errors") or 0
    if errors or word == "errors":
        return f"{errors or 1} error{'s' if errors > 1 else ''}", "bad"
    more = " safe" if profile.flag("is_fallback") else " draft" if profile.flag("has_draft") else ""
    if word == "active":
        return "ACTIVE" + more, "good"
    return STATES.get(word, word) + more, "working" if word == "draft" else ""


def model_name(profile: Facts) -> str:
    """The file's name without its place and ending; what names none takes the default model."""
    name = profile.text("model")
    return name.rsplit("/", 1)[-1].removesuffix(".gguf") if name else "(default)"


def details(profile: Facts, plan: Facts, width: int) -> list[Line]:
    """The column beside the list. Without a plan yet, the list's own numbers."""
    facts = plan or profile
    if profile.text("state") == "errors" and not plan:
        n = profile.whole("n_errors") or 1
        return wrapped(f"The file has {n} error{'s' if n > 1 else ''}; enter opens it on the first one.", width)
    lines: list[Line] = [*wrapped(model_name(facts), width, "model  ")]
    if shape := _shape(plan):
        lines.append(f"       {shape}")
    ctx = count(plan.num("n_ctx")) if plan else _number(profile, "ctx_size")
    lines.append(f"ctx    {ctx}   slots {_number(facts, 'parallel')}")
    lines.append(f"thr    {_number(facts, 'threads')}   load {plan.text('load_mode', '-')}")
    lines += [f"kv     k {facts.text('type_k', '-')}  v {facts.text('type_v', '-')}", ""]
    for name in ("weights", "kv", "engine", "total"):
        label = f"{'memory' if name == 'weights' else '':<7}{name}"
        lines.append(f"{label:<15}{size(facts.num(f'{name}_bytes')):>11}")
    lines.append(f"{'budget':<15}{size(facts.num('budget_bytes')):>11}")
    lines += [[("FIT    ", ""), verdict(facts), (f"  {spare(facts)}", "")], ""]
    if facts.has("cached"):
        lines.append(f"In page cache  {percent(facts.num('cached'))}")
    if plan:
        lines += [*wrapped(gap(plan), width), f"Checks  {passed(plan)}"]
    return [*lines, "", *_history(profile, width)]


def _shape(plan: Facts) -> str:
    """What the file's header says of the model."""
    if not plan.has("n_layers"):
        return ""
    told = f"{size(plan.num('size'))} {count(plan.num('n_layers'))} layers"
    return f"{told} kv {count(plan.num('n_kv_heads'))}x{count(plan.num('head_dim'))}"


def _history(profile: Facts, width: int) -> list[Line]:
    rev = profile.whole("rev") or 0
    source = profile.text("source", "packaged")
    told = [f"rev {rev}, {'edited here' if source == 'edited' else 'as shipped'}"]
    if profile.has("last_used"):
        by = f" by {profile.text('last_by')}" if profile.text("last_by") else ""
        told.append(f"Last used {day(profile.num('last_used'))}{by}")
    if profile.has("last_tok_s"):
        told.append(f"Last run  {speed(profile.num('last_tok_s'))}")
    told.append(f"SHA-256   {profile.text('etag', '-')[:16]}")
    return [fit(line, width).rstrip() for line in told]


def strip(profile: Facts, plan: Facts, width: int) -> list[Line]:
    """The same in six lines, for the strip below the list of a small window."""
    facts = plan or profile
    if profile.text("state") == "errors" and not plan:
        return details(profile, plan, width)
    cached = f"in page cache {percent(facts.num('cached'))}   " if facts.has("cached") else ""
    lines: list[Line] = [one_line(facts)]
    if plan:
        lines.append(fit(f"{cached}{gap(plan)}", width).rstrip())
        words = "  ".join(f"{row.text('text').split()[0]} {row.text('result')}" for row in plan.rows("checks"))
        lines.append(fit(f"checks {passed(plan)}   {words}", width).rstrip())
        lines += bad_checks(plan, width)[:1] or wrapped(plan.text("reason"), width)[:1]
    return lines + [line for line in _history(profile, width) if not str(line).startswith("SHA")][:2]


def bad_checks(plan: Facts, width: int) -> list[Line]:
    """Those checks that did not pass, in words."""
    lines: list[Line] = []
    for check in plan.rows("checks"):
        result = check.text("result")
        if result in ("warn", "fail"):
            told = f"{result}: {check.text('text')}; {check.text('detail')}"
            lines.append([(fit(told, width).rstrip(), "warning" if result == "warn" else "bad")])
    return lines


def why(profile: Facts, plan: Facts, width: int) -> list[Line]:
    """The checks one by one, or the sentence of the list while there is no plan."""
    if plan.rows("checks"):
        return checks(plan, width)
    reason = plan.text("reason") or profile.text("fit_reason") or "asking the planner ..."
    return [*wrapped(reason, width), *faults(plan, width)]


def matches(profile: Facts, words: str) -> bool:
    """Whether a filter keeps the row: every term in its text, `field:value` in that field, a leading `!` turns it."""
    cells = {key: value for key, (value, _) in row(profile).items()}
    text = " ".join([*cells.values(), profile.text("summary")]).lower()
    for term in words.lower().split():
        is_not, term = term.startswith("!"), term.removeprefix("!")
        field, colon, value = term.partition(":")
        hay, needle = (cells[field].lower(), value) if colon and field in cells else (text, term)
        if needle and (needle in hay) == is_not:
            return False
    return True
