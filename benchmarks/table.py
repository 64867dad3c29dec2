"""Writes benchmarks/results/table.md, the numbers of the README, from the results files. Not here: measuring.

python -m benchmarks.table [NAME ...]     all results files unless named
"""

import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.peers import RESULTS

TABLE = RESULTS / "table.md"


def ratio(row: dict[str, Any]) -> str:
    return f"{row['ratio_to_fastest_peer']:.2f}" if "ratio_to_fastest_peer" in row else ""


def machine_line(result: dict[str, Any]) -> str:
    this = result["machine"]
    virtual = ", virtual" if this["virtual"] else ""
    isa = " ".join(this["isa"])
    return f"{this['cpu']} (family/model {this['family_model']}{virtual}), {this['cpus']} CPUs, {isa}"


def peers_rows(section: dict[str, Any]) -> list[str]:
    lines = ["| test | threads | engine | tokens/s | to the fastest peer |", "|---|---|---|---|---|"]
    for row in section["rows"]:
        cells = (row["test"], str(row["threads"]), row["contender"], f"{row['median_ts']:.1f}", ratio(row))
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def serve_rows(section: dict[str, Any]) -> list[str]:
    lines = ["| server | tokens/s | first piece after | to the fastest peer |", "|---|---|---|---|"]
    for row in section["rows"]:
        wait = f"{row['median_ttft_s'] * 1000:.0f} ms"
        lines.append(f"| {row['contender']} | {row['median_ts']:.1f} | {wait} | {ratio(row)} |")
    return lines


def start_lines(section: dict[str, Any]) -> list[str]:
    warm, cold = section["warm_s"], section["cold_s"]
    lines = [f"First token of `colibri run`: {warm:.2f} s warm, {cold:.1f} s with kernels to compile."]
    for row in section["memory"]:
        worker, api = row["worker_beyond_weights_and_kv_mb"], row["api_rss_anon_mb"]
        lines.append(f"{row['load_mode']}: worker {worker:.0f} MB beyond weights and cache, API process {api:.0f} MB.")
    return lines


def accuracy_rows(section: dict[str, Any]) -> list[str]:
    lines = [
        "| engine | first choice as float32 | as llama.cpp's text | KL text | KL continued |",
        "|---|---|---|---|---|",
    ]
    for name, v in section["verdicts"].items():
        shares = f"{v['agrees_with_exact']:.1%} | {v['agrees_with_peer']:.1%}"
        lines.append(f"| {name} | {shares} | {v['kl_text']:.4f} | {v['kl_continued']:.4f} |")
    return lines


def terminal_rows(section: dict[str, Any]) -> list[str]:
    start = section["start"]
    lines = [
        "| terminal | asks every | requests | bytes/s | of a core | memory |",
        "|---|---|---|---|---|---|",
    ]
    for row in section["rows"]:
        every = f"{row['rate_s']:g} s" if row["rate_s"] else "paused"
        size, requests = f"{row['columns']}x{row['rows']}", str(row["requests"] or "none")
        figures = f"{row['bytes_per_s']:,.0f} | {row['cpu_share']:.1%} | {row['rss_mb']:.0f} MB"
        lines.append(f"| {size} | {every} | {requests} | {figures} |")
    first, state = start["first_panel_s"], start["state_s"]
    return [*lines, "", f"First panel after {first:.2f} s, the engine's state after {state:.2f} s."]


def storm_lines(section: dict[str, Any]) -> list[str]:
    swaps, requests = section["swaps"], section["requests"]
    ways = ", ".join(f"{n} {what}" for what, n in sorted(swaps.items()))
    answered = sum(n for what, n in requests.items() if what.startswith("answered"))
    others = ", ".join(f"{n} {what}" for what, n in sorted(requests.items()) if not what.startswith("answered"))
    return [
        f"{sum(swaps.values())} swaps: {ways}.",
        f"{sum(requests.values())} requests: {answered} whole answers of the model they name; {others}.",
        f"Wrong or lost: {section['n_wrong']}. Engines in memory at once: {section['engines_at_most']} at most.",
    ]


SECTIONS = {
    "peers": ("Whole model, medians of {rounds} alternated rounds", peers_rows),
    "serve": ("Through HTTP, streamed, medians of {rounds} alternated rounds", serve_rows),
    "start": ("Start and memory", start_lines),
    "storm": ("Random swaps, aborts and kills under four clients", storm_lines),
    "terminal": ("The terminal program", terminal_rows),
    "accuracy": ("Distributions against the exact float32 forward", accuracy_rows),
}


def render(result: dict[str, Any]) -> str:
    """One machine's part of the table."""
    parts = [machine_line(result)]
    for name, (title, rows) in SECTIONS.items():
        if name in result:
            section = result[name]
            noise = "" if section.get("quiet", True) else " (the machine was not quiet)"
            lines = rows(section)
            body = "\n".join(lines) if lines[0].startswith("|") else "\n".join(f"- {line}" for line in lines)
            parts.append(f"{title.format(**section)}, {section['model']}, {section['date']}{noise}:\n\n{body}")
            if "contenders" in section:
                about = [
                    f"{who}: {', '.join(filter(None, facts.values()))}" for who, facts in section["contenders"].items()
                ]
                parts.append("\n".join(f"- {line}" for line in about))
    return "\n\n".join(parts)


def main() -> None:
    names = sys.argv[1:] or sorted(path.stem for path in RESULTS.glob("*.json"))
    results: list[Path] = [RESULTS / f"{name}.json" for name in names]
    TABLE.write_text("\n\n".join(render(json.loads(path.read_text())) for path in results) + "\n")
    print(TABLE, file=sys.stderr)


if __name__ == "__main__":
    main()
