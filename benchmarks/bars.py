"""What the figures must show, computed from the results file. Not here: measuring, the README's table.

    python -m benchmarks.bars      prints each bar, its figure and whether it holds; exit 1 when one does not
"""

import sys
from dataclasses import dataclass
from statistics import geometric_mean
from typing import Any

from benchmarks.record import load

BARRED = ("smollm2", "1b-q4_0", "1b-q4_k_m", "1b-q6_k", "1b-q8_0", "1b-tq2_0")
MODES = ("default", "strict")
DEPTH, CACHES = 4096, ("f16", "q8_0")
BANDWIDTH = ("1b-q4_k_m", "1b-q8_0")


@dataclass(frozen=True, slots=True)
class Bar:
    """A figure that must reach `least`; None where nothing was measured."""

    name: str
    value: float | None
    least: float
    where: str = ""

    @property
    def holds(self) -> bool:
        return self.value is not None and self.value >= self.least

    def line(self) -> str:
        value = "not measured" if self.value is None else f"{self.value:.2f}"
        verdict = "" if self.value is None else "holds" if self.holds else "FAILS"
        return f"{self.name:44s} {value:>12s}  at least {self.least:.2f}  {verdict:5s} {self.where}".rstrip()


def kind(test: str) -> str:
    """What a test measures: tg64 is decode, pp256 prefill, tg64@q8_0 (at DEPTH, with that cache) deep q8_0."""
    name, _, cache = test.partition("@")
    return f"deep {cache}" if cache else "decode" if name.startswith("tg") else "prefill"


def own_rows(models: dict[str, Any], what: str, mode: str) -> dict[str, Any]:
    """Our row of each barred model in one kind of test."""
    return {
        name: row
        for name in BARRED
        for row in models.get(name, {}).get("rows", [])
        if row["contender"] == "colibri resident" and row["mode"] == mode and kind(row["test"]) == what
    }


def ratios(models: dict[str, Any], what: str, mode: str) -> dict[str, float]:
    """Ours to the fastest peer by model."""
    found = own_rows(models, what, mode)
    return {n: row["ratio_to_fastest_peer"] for n, row in found.items() if "ratio_to_fastest_peer" in row}


def bars(models: dict[str, Any]) -> list[Bar]:
    """What whole models must show; a geometric mean counts only when all its models were measured."""
    out = []
    for mode in MODES:
        for what, mean, least in (("decode", 1.3, 1.1), ("prefill", 2.2, 1.35)):
            found = ratios(models, what, mode)
            whole = geometric_mean(found.values()) if len(found) == len(BARRED) else None
            lacking = ", ".join(n for n in BARRED if n not in found)
            out.append(Bar(f"{what}, {mode}, geometric mean", whole, mean, f"without {lacking}" if lacking else ""))
            out.append(_least(f"{what}, {mode}, least", found, least))
    out += [_least(f"decode at depth {DEPTH}, {t}, least", ratios(models, f"deep {t}", "strict"), 1.3) for t in CACHES]
    f16, q8_0 = (own_rows(models, f"deep {t}", "strict") for t in CACHES)
    for name in sorted(f16.keys() & q8_0.keys()):
        speed = q8_0[name]["median_ts"] / f16[name]["median_ts"]
        out.append(Bar(f"q8_0 to f16 at depth {DEPTH}, {name}", speed, 1.0))
    for name in BANDWIDTH:
        share = models.get(name, {}).get("bandwidth_share")
        out.append(Bar(f"share of the read bandwidth, {name}", share, 0.8))
    return out


def every_bar(result: dict[str, Any]) -> list[Bar]:
    """Those of whole models, then those of the other sections of a results file."""
    out = bars(result.get("peers", {}).get("models", {}))
    model = "1b-q4_k_m"
    widths = result.get("width", {}).get("models", {}).get(model, {}).get("rows", [])
    eight = next((row["ratio"] for row in widths if row["width"] == 8), None)
    out.append(Bar(f"eight sequences to one, {model}", eight, 3.0))
    for name, shape in result.get("attention", {}).get("models", {}).items():
        spent = {(r["depth"], r["type"]): r["ms"] for r in shape["rows"] if r["what"] == "decode"}
        for depth in sorted({d for d, kind in spent if kind == "q8_0" and d >= DEPTH}):
            times = spent[depth, "f16"] / spent[depth, "q8_0"]
            out.append(Bar(f"attention, q8_0 to f16 at depth {depth}, {name}", times, 1.0))
    for name, pressed in result.get("pressure", {}).get("models", {}).items():
        for row in pressed["rows"]:
            out.append(Bar(f"{row['what']}, {name}", row["ratio"], 0.9 if row["what"].startswith("quota") else 0.35))
    served = result.get("serve", {}).get("models", {}).get(model, {}).get("rows", [])
    alone = next((row["ratio_to_alone"] for row in served if row["contender"] == "colibri resident"), None)
    out.append(Bar(f"served to the engine alone, {model}", alone, 0.85))
    return out


def _least(name: str, found: dict[str, float], least: float) -> Bar:
    worst = min(found, key=lambda model: found[model]) if found else ""
    return Bar(name, found.get(worst), least, worst)


def main() -> int:
    found = every_bar({name: load(name) for name in ("peers", "width", "attention", "pressure", "serve")})
    for bar in found:
        print(bar.line())
    return 0 if all(bar.holds for bar in found) else 1


if __name__ == "__main__":
    sys.exit(main())
