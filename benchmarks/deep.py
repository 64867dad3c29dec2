"""Decoding far into a context: both engines read a long prompt once and are then asked in turn for some tokens more.

Reading 4096 tokens takes a minute with a 1 GB model, decoding 64 takes two seconds, so a round must not begin with the
prompt. Both engines stay loaded, the idle one asleep; both go on from where they were, so both are equally deep.

    python -m benchmarks.deep MODEL TYPE DEPTH THREADS     our side: for each line "64" one line of tokens per second

Not here: rounds and files (peers.py).
"""

import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks import llamacpp, ours
from benchmarks.contenders import prompt_ids, strict_flags
from benchmarks.machine import pin_self, pinned

ROOM = 1024  # positions behind the prompt


class OurDepth:
    """Our engine in a process of its own for the length of a `with`."""

    name = "colibri resident"

    def __init__(self, model: Path, kv_type: str, depth: int, threads: int) -> None:
        words = [str(model), kv_type, str(depth), str(threads)]
        self.command = [sys.executable, "-m", "benchmarks.deep", *words]
        self.cpus = pinned(threads)
        self.about = {"version": ours.our_version(), "command": f"engine, -ctk {kv_type} -ctv {kv_type}"}

    def __enter__(self) -> Self:
        self.process = subprocess.Popen(
            self.command, cwd=ours.ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            preexec_fn=partial(pin_self, self.cpus),
        )  # fmt: skip
        self._line()
        return self

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{' '.join(self.command)} ended with code {self.process.wait()}")
        return line

    def decode(self, n: int) -> float:
        """Tokens per second over the next n tokens."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{n}\n")
        self.process.stdin.flush()
        return float(self._line())

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.process.terminate()
        self.process.wait()


class PeerDepth:
    """A native llama-server that keeps the prompt in its one slot; its own timings leave HTTP out."""

    name = "llama.cpp native"

    def __init__(self, server: str, model: Path, kv_type: str, depth: int, threads: int) -> None:
        flags = ["-ctk", kv_type, "-ctv", kv_type, "--cache-ram", "0", *strict_flags(threads)]
        self.server = llamacpp.Server(
            server, model, n_ctx=depth + ROOM, n_threads=threads, cpus=pinned(threads), flags=flags
        )
        self.about = llamacpp.versions(server) | {"command": f"llama-server {' '.join(flags)} -fa auto"}
        self.ids, self.is_read = prompt_ids(depth), False

    def __enter__(self) -> Self:
        self.server.__enter__()
        self.decode(1)
        self.is_read = True
        return self

    def decode(self, n: int) -> float:
        """Tokens per second over the next n tokens; what was answered becomes part of the prompt."""
        flags = {"cache_prompt": True, "ignore_eos": True, "top_k": 1}
        answer = self.server.complete(self.ids, n + 1, **flags)
        self.ids += answer["tokens"]
        if self.is_read and answer["timings"]["prompt_n"] > n + 1:
            raise SystemExit(f"llama-server read {answer['timings']['prompt_n']} tokens anew; its slot lost the prompt")
        return float(answer["timings"]["predicted_per_second"])

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.server.__exit__(kind, error, at)


def main() -> None:
    from appliance.machine.host import read_machine
    from engine.load import EngineOptions, load_engine
    from engine.sampling import Sampling

    path, kv_type, depth, threads = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    options = EngineOptions(
        n_ctx=depth + ROOM, threads=threads, threads_batch=threads, type_k=kv_type, type_v=kv_type,
        load_mode="resident",
    )  # fmt: skip
    engine = load_engine(path, options, read_machine())
    seq = engine.open(prompt_ids(depth), Sampling(temperature=0.0), ROOM)
    while engine.step(seq).token is None:
        pass
    print("ready", flush=True)
    for line in sys.stdin:
        start = time.perf_counter()
        for _ in range(int(line)):
            engine.step(seq)
        print(int(line) / (time.perf_counter() - start), flush=True)


if __name__ == "__main__":
    main()
