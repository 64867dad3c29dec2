"""`colibri bench`: speed of reading prompts (pp) and of answering (tg). Not here: number lists, how rows look."""

import argparse
import itertools
import os
import random
import sys
import time
from collections.abc import Iterator
from typing import Any

from appliance.cli.bench_lists import MOST_TESTS, Test, engines_of, tests_of
from appliance.cli.bench_ops import SCOPES, op_rows
from appliance.cli.bench_rows import FORMATS, Printer, test_name, with_samples
from appliance.cli.ceilings import read_gbps
from appliance.cli.flags import MODEL, add_settings, resolved
from appliance.cli.local import Local
from appliance.cli.main import version
from appliance.cli.progress import Progress
from engine.errors import UsageError
from engine.footprint import ModelFacts
from engine.models.shape import DecoderShape

NAME = "bench"
HELP = "measure prompt and answer speed"

def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "examples:\n  colibri bench -m model.gguf\n  colibri bench -m model.gguf -p 256 -n 64 -t 1-4 -r 3 -o json\n"
        "  colibri bench -m model.gguf -p 0 -n 64 -d 0,4096 -ctk f16,q8_0\n\n"
        "Number lists: 512 or 1,2,4 or 1-4 or 2-8+2 or 1-8*2.\nceiling: what this machine's memory can be read with."
    )
    tests = parser.add_argument_group("tests")
    for names, default, words in (
        (("-p", "--prompt-tokens", "--n-prompt"), "512", "prompt lengths, 0 for none"),
        (("-n", "--gen-tokens", "--n-gen"), "128", "answer lengths, 0 for none"),
        (("-d", "--n-depth"), "0", "tokens in the context before the clock starts"),
    ):
        tests.add_argument(*names, dest=names[1].strip("-").replace("-", "_"), metavar="N", action="append",
                           help=f"{words} (default: {default})")  # fmt: skip
    tests.add_argument("-pg", metavar="PP,TG", action="append", default=[], help="a prompt and an answer as one test")
    tests.add_argument("-r", "--repeat", "--repetitions", type=int, default=5, metavar="N", help="runs per test")
    tests.add_argument("--no-warmup", action="store_true", help="no uncounted run before each test")
    tests.add_argument("--per-op", nargs="?", const=SCOPES[0], choices=SCOPES, metavar="BY",
                       help="time every op as well, summed by op or, with `layer`, by layer; md or json")  # fmt: skip
    tests.add_argument("-o", "--output", choices=FORMATS, default="md", help="on stdout (default: md)")
    engines = parser.add_argument_group("engine, each a list")
    for names in (("-t", "--threads"), ("-tb", "--threads-batch"), ("-b", "--batch-size"), ("-ub", "--ubatch-size"),
                  ("-ctk", "--cache-type-k"), ("-ctv", "--cache-type-v"), ("-lm", "--load-mode")):  # fmt: skip
        key = "list_" + names[1].strip("-").replace("-", "_")
        engines.add_argument(*names, dest=key, metavar="LIST", action="append", help="as in colibri run, with commas")
    for name, mode in (("--mmap", "auto"), ("--no-mmap", "resident"), ("--mlock", "mlock"), ("--no-mlock", "auto")):
        engines.add_argument(name, dest="list_load_mode", action="append_const", const=mode, help=f"load mode {mode}")
    add_settings(parser, MODEL)


def run(args: argparse.Namespace) -> int:
    if not 1 <= args.repeat <= 1000:
        raise UsageError(f"--repeat {args.repeat}: 1 to 1000 is possible")
    tests, engines = tests_of(args), engines_of(args)
    if not tests:
        raise UsageError("nothing to measure; -p, -n and -pg are all 0")
    n_tests = len(tests) * len(engines)
    if n_tests > MOST_TESTS:
        raise UsageError(f"{n_tests} tests are asked for, {MOST_TESTS} are the most; shorten the lists")
    if args.per_op and args.output not in ("md", "json"):
        raise UsageError(f"--per-op prints md or json, not {args.output}")
    needed = max(t.n_depth + t.n_prompt + t.n_gen for t in tests) + 1
    printer, ceilings = Printer(args.output), dict[int, float | None]()
    count = itertools.count(1)
    for engine_flags in engines:
        local = Local(_settings(args, {**engine_flags, "ctx_size": needed, "spec_type": "none"}), with_text=False)
        bench = _Bench(local, args.repeat, not args.no_warmup)
        for test in tests:
            row = bench.row(test, f"{next(count)}/{n_tests}")
            threads = row["n_threads"]
            if threads not in ceilings:
                ceilings[threads] = read_gbps(threads)
            row = _with_ceiling(row, bench.bytes_per_token(test), ceilings[threads])
            if args.per_op:
                row["ops"] = op_rows(bench.op_times(test), args.per_op, row["ceiling_gbps"])
            _print(printer.row(row))
        local.close()
    _print(printer.end())
    return 0


def _print(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _settings(args: argparse.Namespace, flags: dict[str, Any]) -> Any:
    return resolved(argparse.Namespace(**{**vars(args), **flags})).settings


class _Bench:
    """The tests of one loaded engine."""

    def __init__(self, local: Local, repeat: int, is_warmed: bool) -> None:
        self._local, self._engine = local, local.engine
        self._repeat, self._is_warmed = repeat, is_warmed
        self._progress = Progress()
        header = local.header
        tensors = header.tensors
        self._types = [t.type.name for t in tensors.values()]
        self._sizes = {name: t.n_bytes for name, t in tensors.items()}
        experts = ModelFacts.of(header, DecoderShape.read(header)).experts
        self._idle = experts.n_bytes - experts.cycle_bytes if experts else 0
        self._n_params = sum(t.k * t.n_rows for t in tensors.values())

    def row(self, test: Test, label: str) -> dict[str, Any]:
        """One test measured: warmed up once, then `repeat` samples."""
        row = self._facts() | test._asdict() | {"test_time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
        samples: list[int] = []
        runs = self._repeat + self._is_warmed
        for i, ns in enumerate(self._local.stream(lambda: self._samples(test, runs)), 1):
            if sys.stderr.isatty() or i == runs:
                self._progress.say_over(f"{label} {test_name(row)} with {row['n_threads']} threads, run {i}/{runs}")
            samples.append(ns)
        self._progress.close()
        return with_samples(row, samples[self._is_warmed :], test.n_prompt + test.n_gen)

    def bytes_per_token(self, test: Test) -> float | None:
        """What one answered token reads: the weights but for experts it does not use, and the cache at the test's mean
        depth; None for prompts."""
        if test.n_prompt:
            return None
        # An input embedding of its own is looked up, one row per token.
        apart = self._sizes.get("token_embd.weight", 0) if "output.weight" in self._sizes else 0
        info = self._engine.info
        depth = min(test.n_depth + 1 + test.n_gen / 2, info.n_ctx)
        return sum(self._sizes.values()) - apart - self._idle + info.kv_bytes / info.n_parallel * depth / info.n_ctx

    def _samples(self, test: Test, runs: int) -> Iterator[int]:
        """Nanoseconds of each run."""
        ids = self._ids(test)
        for _ in range(runs):
            yield self._one(ids, test)

    def _ids(self, test: Test) -> list[int]:
        """Random but the same in each run: none meets another's cache."""
        return random.Random(0).choices(range(self._engine.info.n_vocab), k=test.n_depth + test.n_prompt or 1)

    def op_times(self, test: Test) -> list[Any]:
        """The ops of `repeat` runs of a test, each with its time (engine OpTimes)."""
        return [t for times in self._local.stream(lambda: (self._timed(test) for _ in "1")) for t in times]

    def _timed(self, test: Test) -> list[Any]:
        from engine.sampling import Sampling

        engine = self._engine
        ids = self._ids(test)
        n_before = test.n_depth if test.n_prompt else len(ids)
        engine.start_timing()
        for _ in range(self._repeat):
            seq = engine.open(ids, Sampling(temperature=0.0), test.n_gen + 1, frozenset(), 0)
            try:
                engine.pause_timing(n_before > 0)
                out = None
                while out is None or out.token is None:
                    out = _step(engine, seq)
                    engine.pause_timing(out.done < n_before)
                for _ in range(test.n_gen):
                    _step(engine, seq)
            finally:
                engine.close(seq)
        return engine.stop_timing()

    def _one(self, ids: list[int], test: Test) -> int:
        from engine.sampling import Sampling

        engine = self._engine
        # The token that ends the prefill costs no pass over the weights, so an answer of n takes n more.
        seq = engine.open(ids, Sampling(temperature=0.0), test.n_gen + 1, frozenset(), 0)
        try:
            marks = {0: time.perf_counter_ns()}
            out = None
            while out is None or out.token is None:
                out = _step(engine, seq)
                marks[out.done] = time.perf_counter_ns()
            for _ in range(test.n_gen):
                _step(engine, seq)
            end = time.perf_counter_ns()
        finally:
            engine.close(seq)
        if test.n_prompt == 0:
            return end - marks[len(ids)]
        if test.n_depth in marks:
            return end - marks[test.n_depth]
        # The depth ends inside a pass: what it costs alone is taken off.
        return max(1, end - marks[0] - self._one(ids[: test.n_depth], Test(test.n_depth, 0, 0)))

    def _facts(self) -> dict[str, Any]:
        info = self._engine.info
        widest = max(set(self._types), key=lambda name: sum(n == name for n in self._types if n != "F32"))
        return {
            "build_commit": version(),
            "build_number": 0,
            "cpu_info": _cpu_info(),
            "gpu_info": "",
            "backends": f"numba {info.isa}",
            "model_filename": str(self._local.path),
            "model_type": f"{info.architecture} {self._n_params / 1e6:.0f}M {widest}",
            "model_size": sum(self._sizes.values()),
            "model_n_params": self._n_params,
            "n_batch": info.batch_size,
            "n_ubatch": info.ubatch_size,
            "n_threads": info.threads,
            "n_threads_batch": info.threads_batch,
            "cpu_mask": hex(sum(1 << cpu for cpu in os.sched_getaffinity(0))),
            "type_k": info.type_k,
            "type_v": info.type_v,
            "n_gpu_layers": 0,
            "use_mmap": info.load_mode == "mmap",
            "load_mode": info.load_mode,
        }


def _step(engine: Any, seq: Any) -> Any:
    out = engine.step(seq)
    if out.cancelled:
        raise KeyboardInterrupt
    return out


def _with_ceiling(row: dict[str, Any], n_bytes: float | None, gbps: float | None) -> dict[str, Any]:
    """What decoding reads per second beside what the memory gives; a prompt's ceiling is arithmetic, not measured."""
    used = None if n_bytes is None else round(n_bytes * row["avg_ts"] / 1e9, 3)
    ceiling_ts = None if n_bytes is None or gbps is None else round(gbps * 1e9 / n_bytes, 3)
    return row | {"used_gbps": used, "ceiling_gbps": None if gbps is None else round(gbps, 3), "ceiling_ts": ceiling_ts}


def _cpu_info() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            return next((line.partition(":")[2].strip() for line in file if line.startswith("model name")), "")
    except OSError:
        return ""
