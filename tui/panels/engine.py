"""The engine in lines: state, profile, model, context, threads, the last swap. Not here: how fast it is (speed.py)."""

from tui.looks import Looks
from tui.panels.picture import ROOMY, Part, Picture, drawn
from tui.panels.speed import speed_line, work_line
from tui.snap import Snap
from tui.units import age, clock, count, elapsed, size
from tui.words import fit

WORDS = {"ready": "ok", "applied": "ok", "rolled_back": "rolled back", "fallback": "ended in fallback"}
GOOD = {"ready", "applied", "unchanged"}


def engine(snap: Snap, looks: Looks, width: int, height: int) -> Picture:
    """Six lines of a panel of its own."""
    roomy = width >= ROOMY
    cells, gap = (9, "   ") if roomy else (8, "  ")
    isa = f"{gap}{snap.text('worker.isa')}" if roomy else ""
    lines: list[list[Part]] = [
        [f"{'state':{cells}}", *_state(snap), f"{gap}up {age(snap.num('uptime_s'))}"],
        [f"{'profile':{cells}}", *_profile(snap)],
        [f"{'model':{cells}}", _model(snap, width - cells)],
        [f"{'ctx':{cells}}", f"{_n(snap, 'worker.n_ctx')} x {_slots(snap, roomy)}{gap}kv {kv_types(snap)}"],
        [f"{'threads':{cells}}", f"{_n(snap, 'worker.threads')}{gap}batch {batches(snap)}{isa}"],
        happening(snap),
    ]
    return drawn(lines, looks, width, height)


def engine_strip(snap: Snap, looks: Looks, width: int, height: int) -> Picture:
    """Three lines that hold the engine and its speed, for 80 columns."""
    threads, isa = _n(snap, "worker.threads"), snap.text("worker.isa")
    shape = f"ctx {_n(snap, 'worker.n_ctx')}x{_n(snap, 'slots.total')}  t{threads} {isa}".rstrip()
    first: list[Part] = [*_state(snap), f" {_rev(snap)}  {shape}  batch {_n(snap, 'worker.batch_size')}  "]
    news = happening(snap, short=True) if snap.link.is_up else []
    if not snap.is_known:
        first = [*_state(snap), "  nothing is known yet"]
    lines = [[*first, *news], speed_line(snap, looks), work_line(snap, looks)]
    return drawn(lines, looks, width, height, f"up {age(snap.num('uptime_s'))}")


def happening(snap: Snap, short: bool = False) -> list[Part]:
    """What a person should know of the engine now: why it is not well, the swap that runs, else the last one."""
    reason = snap.text("reason") or snap.text("error.message")
    if snap.at("swap"):
        n, of, stage = _n(snap, "swap.n"), _n(snap, "swap.of"), snap.text("swap.stage", "-")
        return [(f">> swap {snap.text('swap.id')} {n}/{of} {stage} {elapsed(snap.num('swap.elapsed_s'))}", "working")]
    if reason and snap.state not in ("ready", ""):
        return [(f"! {reason}", "warning")]
    last = snap.at("last_swap")
    if not last:
        return ["" if short else f"{'last swap':9}  none"]
    word = last.text("state", "-")
    said, meaning = WORDS.get(word, word.replace("_", " ")), "good" if word in GOOD else "warning"
    took = last.num("took_s")
    lasted = "" if took is None else f" {took:.1f}s" if took < 100 else f" {age(took)}"
    when = clock(last.num("ended"), "%H:%M")
    return [f"last swap {when} " if short else f"last swap  {when} ", (said, meaning), lasted]


def kv_types(snap: Snap) -> str:
    """Both types of the KV cache, once when they are the same."""
    k, v = snap.text("worker.type_k", "-"), snap.text("worker.type_v", "-")
    return k if k == v else f"{k}/{v}"


def batches(snap: Snap) -> str:
    return f"{_n(snap, 'worker.batch_size')}/{_n(snap, 'worker.ubatch_size')}"


def _state(snap: Snap) -> list[Part]:
    if snap.link.is_up or not snap.is_known:
        return [(f"[{snap.word}]", snap.meaning)]
    return [f"last known [{snap.state.upper() or '-'}]"]


def _profile(snap: Snap) -> list[Part]:
    parts: list[Part] = [f"{snap.profile}  {_rev(snap)}"]
    return [*parts, ("  ! the fallback", "warning")] if snap.flag("profile.is_fallback") else parts


def _rev(snap: Snap) -> str:
    rev = snap.whole("profile.rev")
    return "rev -" if rev is None else "as shipped" if rev == 0 else f"rev {rev}"


def _model(snap: Snap, width: int) -> str:
    weights = size(snap.num("worker.weights_bytes"))
    return f"{fit(snap.text('model.id', '-'), width - len(weights) - 1)} {weights}"


def _slots(snap: Snap, in_words: bool) -> str:
    total = snap.num("slots.total")
    words = " slot" if total == 1 else " slots"
    return f"{count(total)}{words if in_words else ''}"


def _n(snap: Snap, path: str) -> str:
    """A whole number without separators, as contexts and batches are written."""
    number = snap.whole(path)
    return "-" if number is None else str(number)
