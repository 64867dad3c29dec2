"""How near the planner comes: private memory and tokens per second, foretold and measured, in groups of limited memory.

    python -m benchmarks.forecasts [-m MODEL] [--only 1,3] [--json]

Each case plans, loads, fills the contexts of all its sequences and then decodes, in a process of its own in a control
group of its own (root only), after a short run that compiles what is missing. The peak of private memory is sampled 20
times a second. The speed of a disk and of a memory that neighbours share changes within seconds (0.9 to 1.6 GB/s and 24
to 52 were seen of one machine): both are measured before each of five rounds of decoding, and the forecast from the
medians of the rates stands against the median of the rounds. All cases together go to benchmarks/results/<machine>.json
and docs/plan.md. Not here: peers (bigger_than_ram.py).
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from appliance.cli.ceilings import read_gbps
from appliance.machine.disk import read_bytes_s
from appliance.machine.host import default_threads, read_machine
from appliance.machine.rates import keep, with_rates
from benchmarks.memory_group import PrivatePeak, group
from benchmarks.models import model_path
from benchmarks.ours import our_version
from benchmarks.record import save, stamp
from engine.budget import MIB, Rate

PAGE = Path(__file__).parents[1] / "docs" / "plan.md"
MARK, END = "<!-- forecasts -->\n", "<!-- /forecasts -->"
ROUNDS, STEPS = 5, 12
RATE_S = 1.0
SKIPPED = 3  # steps until a stream is in its stride
DATA = Path("~/.local/share/colibri").expanduser()


@dataclass(frozen=True, slots=True)
class Case:
    """`limit` in MiB."""

    model: str
    limit: int
    n_ctx: int
    kv: str = "f16"
    parallel: int = 1
    ubatch: int = 512


def cases(large: str) -> list[Case]:
    """Half of them end far below their limit, half at it; `large` is the file that is streamed."""
    return [
        Case("1b-q4_k_m", 2400, 2048),
        Case("1b-q4_k_m", 3000, 4096, "q8_0"),
        Case("1b-q8_0", 3600, 1024, "f16", 4),
        Case("1b-tq2_0", 1400, 1024, "q4_0", 8),
        Case(large, 1600, 1024),
        Case(large, 1600, 2048, "q8_0"),
        Case(large, 1200, 1024, "q4_0"),
        Case(large, 2000, 512, "f16", 8),
    ]


def child(case: Case, is_rehearsal: bool) -> None:
    """What a worker does: plan, load, fill, and when told the disk's speed, decode; one JSON line at the end."""
    from engine.gguf.reader import read_gguf
    from engine.load import EngineOptions, load_engine
    from engine.models.shape import DecoderShape
    from engine.planner import PlanRequest, plan
    from engine.sampling import Sampling

    path = model_path(case.model)
    threads = default_threads(read_machine())
    machine = with_rates(read_machine(), path, DATA, threads)
    gguf = read_gguf(path)
    shape = DecoderShape.read(gguf)
    request = PlanRequest(case.n_ctx, case.kv, case.kv, "auto", case.ubatch, case.parallel, threads)
    made = plan(gguf, shape, machine, request)
    options = EngineOptions(
        n_ctx=case.n_ctx, threads=threads, threads_batch=threads, ubatch_size=case.ubatch, type_k=case.kv,
        type_v=case.kv, n_parallel=case.parallel, spec_type="none", is_served=True,
    )  # fmt: skip
    engine = load_engine(path, options, machine)
    n_rounds = 1 if is_rehearsal else ROUNDS
    depth, n_vocab = 4 if is_rehearsal else made.n_ctx - n_rounds * STEPS - 2, engine.info.n_vocab
    prompts = [[(j * 7919 + i * 104729 + 11) % n_vocab for j in range(depth)] for i in range(case.parallel)]
    texts = [engine.open(ids, Sampling(temperature=0.0), n_rounds * STEPS + 2) for ids in prompts]
    while reading := [text for text in texts if text.phase == "prefill"]:
        engine.step_many(reading)
    rates, speeds = [], []
    for _ in range(n_rounds):
        print("ready", flush=True)
        rates.append(tuple(map(float, sys.stdin.readline().split())))
        times = []
        for _ in range(STEPS):
            start = time.perf_counter()
            engine.step_many(texts)
            times.append(time.perf_counter() - start)
        speeds.append(case.parallel / statistics.mean(times[SKIPPED:]))
    disk, memory = (statistics.median(column) for column in zip(*rates, strict=True))
    if disk:
        machine = replace(machine, disk_rate=Rate(disk, "right before", "measured"))
    if memory:
        machine = replace(machine, memory_rate=Rate(memory, "right before", "measured"))
    planned = {row.name: row.value for row in plan(gguf, shape, machine, request).rows}
    print(json.dumps({
        "load_mode": engine.info.load_mode, "planned_private": made.private_bytes, "bound": made.bound,
        "planned_tok_s": planned["tok_s_full"], "tok_s": statistics.median(speeds),
        "disk_gb_s": round(disk / 1e9, 2), "memory_gb_s": round(memory / 1e9, 1), "tok_s_of_rounds": speeds,
    }))  # fmt: skip


def measured(case: Case, is_rehearsal: bool = False) -> dict[str, Any]:
    """One run in a group of its own. The disk is read by this process: the other one's memory is what is measured."""
    path = model_path(case.model)
    with group(case.limit * MIB) as limited:
        words = ["--child", json.dumps(asdict(case)), *(["--rehearsal"] if is_rehearsal else [])]
        argv = limited.argv([sys.executable, "-m", "benchmarks.forecasts", *words])
        process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdin is not None and process.stdout is not None
        peak = PrivatePeak(process.pid)
        out = ""
        for out in process.stdout:
            if out == "ready\n":
                memory = read_gbps(default_threads(read_machine()), of=statistics.median) or 0.0
                process.stdin.write(f"{read_bytes_s(path, RATE_S) or 0} {memory * 1e9}\n")
                process.stdin.flush()
        process.wait()
        private, kills = peak.stop(), limited.kills
    if process.returncode:
        raise SystemExit(f"{case}: exit code {process.returncode}, {kills} killed")
    found: dict[str, Any] = json.loads(out)
    return asdict(case) | found | {
        "private": private, "private_error": found["planned_private"] / private - 1,
        "tok_s_error": found["planned_tok_s"] / found["tok_s"] - 1, "share_of_limit": private / (case.limit * MIB),
    }  # fmt: skip


def measure_rates(path: Path) -> None:
    threads = default_threads(read_machine())
    memory, read = read_gbps(threads, of=statistics.median), read_bytes_s(path, 2.0)
    keep(DATA, memory=(threads, memory * 1e9) if memory else None, read=(path, read) if read else None)


def line(row: dict[str, Any]) -> str:
    """One row for people."""
    private = (row["planned_private"] / MIB, row["private"] / MIB, row["private_error"])
    return (
        f"{row['model'][-26:]:26s} {row['limit']:5d} MiB  ctx {row['n_ctx']:5d} {row['kv']:5s} x{row['parallel']}"
        f"  {row['load_mode']:8s} private foretold {private[0]:6.0f} measured {private[1]:6.0f} MiB {private[2]:+6.1%}"
        f"  tok/s foretold {row['planned_tok_s']:7.2f} measured {row['tok_s']:7.2f} {row['tok_s_error']:+6.1%}"
        f"  at {row['share_of_limit']:.0%} of the limit"
    )


def table(result: dict[str, Any]) -> str:
    """The rows as docs/plan.md shows them."""
    lines = [
        f"{result['version']}, {result['date']}. MiB and tokens per second; share: the peak's of the limit.", "",
        "| model | limit | ctx | KV | sequences | mode | private foretold | measured | off | share | tok/s foretold "
        "| measured | off | bound |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for row in result["rows"]:
        cells = [
            Path(row["model"]).stem, row["limit"], row["n_ctx"], row["kv"], row["parallel"], row["load_mode"],
            f"{row['planned_private'] / MIB:.0f}", f"{row['private'] / MIB:.0f}", f"{row['private_error']:+.1%}",
            f"{row['share_of_limit']:.0%}", f"{row['planned_tok_s']:.2f}", f"{row['tok_s']:.2f}",
            f"{row['tok_s_error']:+.1%}", row["bound"],
        ]  # fmt: skip
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines) + "\n"


def put(text: str) -> None:
    """Between the marks of docs/plan.md."""
    page = PAGE.read_text()
    before, after = page.index(MARK) + len(MARK), page.index(END)
    PAGE.write_text(page[:before] + text + page[after:])


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare the planner's forecasts with what is measured.")
    parser.add_argument("-m", "--model", help="the large GGUF file that is streamed")
    parser.add_argument("--only", help="numbers of cases, from 1")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--rehearsal", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(Case(**json.loads(args.child)), args.rehearsal)
        return
    if not args.model:
        parser.error("name the large file with -m")
    chosen = cases(args.model)
    if args.only:
        chosen = [chosen[int(word) - 1] for word in args.only.split(",")]
    rows = []
    for case in chosen:
        measure_rates(model_path(case.model))
        measured(case, is_rehearsal=True)
        rows.append(measured(case))
        if not args.json:
            print(line(rows[-1]), flush=True)
    if not args.only:
        result = stamp(Path(args.model)) | {"version": our_version(), "rows": rows}
        save("forecasts", result)
        put(table(result))
    if args.json:
        print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
