"""Writes benchmarks/results/table.md, the numbers of the README, from the results files. Not here: measuring.

python -m benchmarks.table [NAME ...]     all results files unless named
"""

import json
import sys
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.bars import DEPTH, every_bar
from benchmarks.record import RESULTS

TABLE = RESULTS / "table.md"


def ratio(row: dict[str, Any]) -> str:
    return f"{row['ratio_to_fastest_peer']:.2f}" if "ratio_to_fastest_peer" in row else ""


def machine_line(result: dict[str, Any]) -> str:
    this = result["machine"]
    virtual = ", virtual" if this["virtual"] else ""
    isa = " ".join(this["isa"])
    return f"{this['cpu']} (family/model {this['family_model']}{virtual}), {this['cpus']} CPUs, {isa}"


def peers_rows(section: dict[str, Any]) -> list[str]:
    """A row per model and test: the figures as both start by hand, the ratio then and with nailed threads."""
    lines = [
        "| model | test | colibri | fastest peer | ratio | ratio, pinned strictly |",
        "|---|---|---|---|---|---|",
    ]
    for name, model in section["models"].items():
        for test in dict.fromkeys(row["test"] for row in model["rows"]):
            mine = {row["mode"]: row for row in model["rows"]
                    if row["test"] == test and row["contender"] == "colibri resident"}  # fmt: skip
            row = mine.get("default") or mine["strict"]
            rival = max((r["median_ts"] for r in model["rows"] if r["test"] == test and r["mode"] == row["mode"]
                         and not r["contender"].startswith("colibri")), default=None)  # fmt: skip
            peer = f"{rival:.1f}" if rival else ""
            both = f"{ratio(mine.get('default', {}))} | {ratio(mine.get('strict', {}))}"
            lines.append(f"| {name} | {in_words(test)} | {row['median_ts']:.1f} | {peer} | {both} |")
    return lines


def in_words(test: str) -> str:
    """tg64@f16 -> tg64 at depth 4096, f16 cache."""
    name, _, cache = test.partition("@")
    return f"{name} at depth {DEPTH}, {cache} cache" if cache else name


def bars_lines(section: dict[str, Any]) -> list[str]:
    """What the figures must show and do, and what decoding moves; `section` is a whole results file."""
    found = [bar for bar in every_bar(section) if bar.value is not None]
    lines = [f"{b.name}: {b.value:.2f}, at least {b.least:.2f}{'' if b.holds else ', missed'}" for b in found]
    for name, model in section["peers"]["models"].items():
        if "read_gbps" in model:
            reads = f"{model['decode_gbps']:.1f} of {model['read_gbps']:.1f} GB/s"
            lines.append(f"{name}: decoding reads {reads} that plain reading gets")
    return lines


def kernels_rows(section: dict[str, Any]) -> list[str]:
    """A row per type at the shape that most of a model's bytes have."""
    lines = [
        "| type | from L2, GB/s | from memory, 1 and 2 threads | mapped, 2 threads | 8 rows to 1 | tile, GMAC/s |"
        " of the limit |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in section["rows"]:
        if row["shape"] != "ffn up":
            continue
        tile = {name: value for name, value in row["prefill_gmacs"].items() if name.startswith("256 rows")}
        limit = section["limit_gmacs"].get(row["type"], {}).get("one core")
        share = f"{tile['256 rows, 1 threads'] / limit:.0%}" if limit else ""
        cells = (
            row["type"], f"{row['l2_gbps']:.0f}", " and ".join(f"{v:.1f}" for v in row["memory_gbps"].values()),
            f"{max(row['mapped_gbps'].values()):.1f}", f"{row['few']['8']:.1f}",
            " and ".join(f"{v:.0f}" for v in tile.values()), share,
        )  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    read = " and ".join(f"{v:.1f}" for v in section["read_gbps"].values())
    return [*lines, "", f"Plain reading: {read} GB/s. Kernels on {section['isa']} at {section['clock_ghz']} GHz."]


def width_rows(section: dict[str, Any]) -> list[str]:
    head = ["| model | sequences together | tokens/s of all | to one alone |", "|---|---|---|---|"]
    return head + [
        f"| {name} | {row['width']} | {row['median_ts']:.1f} | {row['ratio']:.2f} |"
        for name, model in section["models"].items()
        for row in model["rows"]
    ]


def pressure_rows(section: dict[str, Any]) -> list[str]:
    head = ["| model | pressed by | threads | tokens/s | to unpressed | quota run out |", "|---|---|---|---|---|---|"]
    return head + [
        f"| {name} | {row['what']} | {row['threads']} | {row['pressed_ts']:.1f} | {row['ratio']:.2f} | "
        + (f"{row['throttled']:.1%} of {row['periods']} periods |" if "periods" in row else "|")
        for name, model in section["models"].items()
        for row in model["rows"]
    ]


def attention_rows(section: dict[str, Any]) -> list[str]:
    """A row per shape and depth: milliseconds of a token by type of cache."""
    kinds = list(dict.fromkeys(row["type"] for model in section["models"].values() for row in model["rows"]))
    lines = [f"| shape | depth | {' | '.join(f'{kind}, ms' for kind in kinds)} |", "|---" * (2 + len(kinds)) + "|"]
    for name, model in section["models"].items():
        spent = {(r["depth"], r["type"]): f"{r['ms']:.2f} ({r['share_of_read']:.0%})" for r in model["rows"]
                 if r["what"] == "decode"}  # fmt: skip
        lines += [
            f"| {name} | {depth} | {' | '.join(spent.get((depth, kind), '') for kind in kinds)} |"
            for depth in dict.fromkeys(depth for depth, _ in spent)
        ]
    return [*lines, "", "In brackets: bytes of keys and values read, to plain reading."]


def bigger_rows(section: dict[str, Any]) -> list[str]:
    """A row per model that was larger than its memory."""
    lines = [
        "| model | memory | colibri | llama.cpp | ratio | of what the disk gives | 8 sequences to one |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, model in section["models"].items():
        if r := model.get("steady"):
            share = f"{r['share_of_disk_limit']:.0%}" if "share_of_disk_limit" in r else ""
            peer, times = (f"{r[key]:.2f}" if key in r else "killed" for key in ("peer_tok_s", "ratio_to_peer"))
            limit, ours, many = f"{r['limit_mib']:,} MiB", f"{r['tok_s']:.2f}", f"{r['batch_ratio']:.1f}"
            cells = (name, limit, ours, peer, times, share, many)
            lines.append(f"| {' | '.join(cells)} |")
    for name, model in section["models"].items():
        if rows := model.get("starts"):
            whole = sum(row["n_tokens"] == 8 for row in rows)
            limits = f"limits of {rows[0]['share']:.0%} to {rows[-1]['share']:.0%} of {name}"
            kills = sum(row["kills"] for row in rows)
            lines += ["", f"{whole} of {len(rows)} starts under {limits} answer, {kills} processes were killed."]
    return lines


def experts_rows(section: dict[str, Any]) -> list[str]:
    """A mixture that was larger than its memory; bytes are what a token reads."""
    head = [
        "| model | memory | colibri | llama.cpp | ratio | read, MB | an ideal cache of that size, MB |",
        "|---|---|---|---|---|---|---|",
    ]
    read, ideal = (median(run[key] for run in section["runs"]) / 1e6 for key in ("read_per_token", "ideal_per_token"))
    peer, times = (f"{section[key]:.2f}" if section[key] else "killed" for key in ("peer_tok_s", "ratio"))
    name, limit = section["model"].removesuffix(".gguf"), f"{section['limit_bytes'] >> 20:,} MiB"
    return [*head, f"| {name} | {limit} | {section['tok_s']:.2f} | {peer} | {times} | {read:.0f} | {ideal:.0f} |"]


def serve_rows(section: dict[str, Any]) -> list[str]:
    lines = [
        "| model | server | tokens/s | first piece after | to the fastest peer | to the engine alone |",
        "|---|---|---|---|---|---|",
    ]
    for name, model in section["models"].items():
        for row in model["rows"]:
            wait = f"{row['median_ttft_s'] * 1000:.0f} ms"
            alone = f"{row['ratio_to_alone']:.2f}" if "ratio_to_alone" in row else ""
            cells = (name, row["contender"], f"{row['median_ts']:.1f}", wait, ratio(row), alone)
            lines.append(f"| {' | '.join(cells)} |")
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
    "peers": ("Whole models in tokens per second, two threads, medians of {rounds} alternated rounds", peers_rows),
    "bars": ("All of them together", bars_lines),
    "kernels": ("Kernels of a 2048 x 8192 matrix", kernels_rows),
    "width": ("Several sequences decoding together, medians of {rounds} rounds", width_rows),
    "bigger_than_ram": ("Larger than the memory, tokens per second, medians of {rounds} rounds", bigger_rows),
    "expert_trace": ("Experts larger than the memory, tokens per second, medians of {rounds} rounds", experts_rows),
    "attention": ("Attention of all layers for one token, medians of {rounds} rounds", attention_rows),
    "serve": ("Through HTTP, streamed, medians of {rounds} alternated rounds", serve_rows),
    "pressure": ("On busy cores and under a CPU quota, medians of {rounds} alternated rounds", pressure_rows),
    "start": ("Start and memory", start_lines),
    "storm": ("Random swaps, aborts and kills under four clients", storm_lines),
    "terminal": ("The terminal program", terminal_rows),
    "accuracy": ("Distributions against the exact float32 forward", accuracy_rows),
}


# Sections whose figures stand by model; what an older run left in another form is measured anew.
BY_MODEL = ("peers", "bars", "width", "bigger_than_ram", "attention", "pressure", "serve")


def render(result: dict[str, Any]) -> str:
    """One machine's part of the table."""
    parts = [machine_line(result)]
    for name, (title, rows) in SECTIONS.items():
        section = result.get("peers" if name == "bars" else name, {})
        if not section or (name in BY_MODEL and "models" not in section):
            continue
        facts = summary(section)
        lines = rows(result if name == "bars" else section)
        body = "\n".join(lines) if lines[0].startswith("|") else "\n".join(f"- {line}" for line in lines)
        noise = "" if facts["quiet"] else " (the machine was not quiet)"
        parts.append(f"{title.format(**facts)}{facts['of']}, {facts['date']}{noise}:\n\n{body}")
        if facts["contenders"] and name != "bars":
            parts.append("\n".join(f"- {line}" for line in facts["contenders"]))
    return "\n\n".join(parts)


def summary(section: dict[str, Any]) -> dict[str, Any]:
    """What stands around a section's rows: the least of its models' rounds, the last date, all contenders once."""
    models = list(section.get("models", {}).values()) or [section]
    about = {
        f"{who.partition(',')[0]}: {', '.join(filter(None, facts.values()))}"
        for model in models
        for who, facts in model.get("contenders", {}).items()
    }
    return {
        "rounds": min(model.get("rounds") or len(model.get("runs", ())) for model in models),
        "date": max(model["date"] for model in models),
        "quiet": all(model.get("quiet", True) for model in models),
        "of": f", {section['model']}" if "model" in section else "",
        "contenders": sorted(about),
    }


def main() -> None:
    names = sys.argv[1:] or sorted(path.stem for path in RESULTS.glob("*.json"))
    results: list[Path] = [RESULTS / f"{name}.json" for name in names]
    TABLE.write_text("\n\n".join(render(json.loads(path.read_text())) for path in results) + "\n")
    print(TABLE, file=sys.stderr)


if __name__ == "__main__":
    main()
