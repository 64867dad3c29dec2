"""A batch whose service is killed (kill -9, all its processes) at random rows, against the same batch left alone.

    python -m benchmarks.batch_kills [--rows 2000] [--kills 5] [--parallel 4] [--seed 1] [--model GGUF]

Every custom_id must be there once, with the bytes of the undisturbed run, and a kill may cost no more rows than a
micro-batch has. Adds to benchmarks/results/<machine>.json. Not here: speed, the batch itself (appliance/batches).
"""

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import openai

from appliance.batches.results import MICRO
from benchmarks.model import smollm2
from benchmarks.ours import ROOT, command
from benchmarks.record import save, stamp

START_S, END_S = 300.0, 24 * 3600.0
WHOLE = 2000
"""A run of fewer rows is a look, and no figure is kept of it."""
INSTRUCTION = "You sort notes of a workshop. Answer with the shortest useful summary of the note. " * 6
THINGS = ("the pump leaks", "a door does not close", "the invoice is missing", "somebody asks for a date", "it is loud")


@dataclass
class Seen:
    """What a run of kills showed: answers that were complete and not yet on the disk at each kill, and what was wrong,
    which must stay empty."""

    rows: int
    kills: int
    lost: list[int] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


@dataclass
class Life:
    """One life of the service."""

    process: subprocess.Popen[bytes]
    api: openai.OpenAI

    def kill(self) -> None:
        """All processes of the service at once, as the end of a container kills them."""
        pids = [self.process.pid, *_below(self.process.pid)]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()


def rows(n: int, seed: int) -> bytes:
    """A file of that many rows; one in twenty asks what another has asked."""
    dice, lines, texts = random.Random(seed), [], []
    for i in range(n):
        text = f"Note {i}: {dice.choice(THINGS)}, {dice.choice(THINGS)}; room {dice.randrange(900)}."
        if texts and dice.random() < 0.05:
            text = dice.choice(texts)
        texts.append(text)
        body = {
            "messages": [{"role": "system", "content": INSTRUCTION}, {"role": "user", "content": text}],
            "max_tokens": 8, "temperature": dice.choice([0, 0, 0.8]), "seed": i if dice.random() < 0.5 else None,
        }  # fmt: skip
        lines.append({"custom_id": f"r{i}", "method": "POST", "url": "/v1/chat/completions", "body": body})
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


@contextmanager
def living(folder: Path, model: Path, *flags: str) -> Iterator[Life]:
    """A service over the folder's data, until the block ends or it is killed."""
    data = folder / "data"
    words = ["serve", "-m", str(model), "--port", "0", "--data-dir", str(data), "--no-auth",
             "--log-jsonl", "--log-file", str(folder / "log.jsonl"), *flags]  # fmt: skip
    process = subprocess.Popen(command(*words), cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    assert process.stderr is not None
    life = None
    try:
        line = next((line.decode() for line in process.stderr if line.startswith(b"listening on")), "")
        if not line:
            raise SystemExit("the service ended before it listened")
        base = line.split()[2].rstrip(",")
        life = Life(process, openai.OpenAI(base_url=f"{base}/v1", api_key="none", max_retries=5))
        yield life
    finally:
        (life or Life(process, openai.OpenAI(api_key="none"))).kill()
        process.stderr.close()


def ended(life: Life, name: str) -> openai.types.Batch:
    """The batch once it has ended."""
    until = time.monotonic() + END_S
    while (batch := life.api.batches.retrieve(name)).status in ("validating", "in_progress", "finalizing"):
        assert time.monotonic() < until, "the batch did not end"
        time.sleep(0.1)
    return batch


def begun(life: Life, data: bytes) -> str:
    file = life.api.files.create(file=("rows.jsonl", data), purpose="batch")
    asked: Any = {"input_file_id": file.id, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    return life.api.batches.create(**asked).id


def look(folder: Path, model: Path, n_rows: int, n_kills: int, seed: int, *flags: str) -> Seen:
    """Run the batch with kills, then without, and compare."""
    dice, data = random.Random(seed), rows(n_rows, seed)
    seen, name = Seen(n_rows, n_kills), ""
    for at in sorted(dice.sample(range(1, n_rows * 9 // 10), n_kills)):
        with living(folder, model, *flags) as life:
            name = name or begun(life, data)
            output = folder / "data" / "batches" / "runs" / name / "output.jsonl"
            until = time.monotonic() + END_S
            while not output.exists() or output.read_bytes().count(b"\n") < at:
                assert time.monotonic() < until and life.process.poll() is None, "the rows do not come"
                time.sleep(dice.uniform(0.0, 0.05))
            life.kill()
            seen.lost.append(_answered(folder) - _on_disk(output) - sum(seen.lost))
    with living(folder, model, *flags) as life:
        batch = ended(life, name)
        cut = _records(life, batch)
        whole = _records(life, ended(life, begun(life, data)))
        if batch.status != "completed":
            seen.wrong.append(f"the batch is {batch.status}")
    if len(cut) != n_rows or len({json.loads(line)["custom_id"] for line in cut}) != n_rows:
        seen.wrong.append(f"{len(cut)} records for {n_rows} rows")
    if (n := len(set(cut) ^ set(whole))) != 0:
        seen.wrong.append(f"{n} records differ from those of the undisturbed run")
    seen.wrong += [f"a kill lost {lost} answers" for lost in seen.lost if not 0 <= lost <= MICRO]
    return seen


def _records(life: Life, batch: openai.types.Batch) -> list[str]:
    """The output's lines, without the moment the batch was made."""
    assert batch.output_file_id is not None, batch
    lines = life.api.files.content(batch.output_file_id).text.splitlines()
    return [line.replace(f'"created":{batch.created_at}', '"created":0') for line in lines]


def _answered(folder: Path) -> int:
    """How often the log says that a row was answered."""
    lines = (folder / "log.jsonl").read_bytes().splitlines()
    return sum(b'"POST /v1/chat/completions"' in line and b'"status": 200' in line for line in lines)


def _on_disk(output: Path) -> int:
    """Rows on the disk that were computed, not copied."""
    lines = output.read_bytes().splitlines(keepends=True)
    return sum(b'"copied_from"' not in line for line in lines if line.endswith(b"\n"))


def _below(pid: int) -> list[int]:
    found = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += [int(child), *_below(int(child))]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=WHOLE)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--parallel", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--model", type=Path)
    args = parser.parse_args()
    model = args.model or smollm2()
    with tempfile.TemporaryDirectory(prefix="colibri-kills-") as folder:
        seen = look(Path(folder), model, args.rows, args.kills, args.seed, "--parallel", str(args.parallel))
    found = {"rows": seen.rows, "kills": seen.kills, "lost_per_kill": seen.lost, "wrong": seen.wrong}
    print(json.dumps(found, indent=1))
    if args.rows >= WHOLE:
        save("batch_kills", stamp(model) | found)
    return 1 if seen.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
