"""Judges next-token distributions: ours and llama.cpp's, against the exact float32 forward of the same file.

    python -m benchmarks.accuracy peer --write     llama.cpp's answers -> tests/vectors/smollm2.json
    python -m benchmarks.accuracy ours             colibri's verdict beside the stored one

Teacher-forced on llama.cpp's own greedy continuations: free-running text proves nothing, since llama.cpp leaves its own
text after 0-26 tokens when its batch size changes. Not here: the arithmetic (divergence.py), the prompts (prompts.py).
"""

import argparse
import datetime
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import llamacpp, ours
from benchmarks.divergence import Top, disagreements, kl, log_softmax
from benchmarks.model import digest, smollm2
from benchmarks.prompts import PROMPTS, TEXT
from benchmarks.record import save, stamp
from tests.reference import Reference

VECTORS = Path(__file__).parent.parent / "tests" / "vectors" / "smollm2.json"
N_CONTINUED, N_TEXT, N_TOP = 32, 500, 200
TEXT_NAME = "text"


@dataclass(frozen=True, slots=True)
class Case:
    """A prompt, its ids, and the greedy continuation that llama.cpp gave (empty for the plain text)."""

    name: str
    text: str
    ids: list[int]
    continuation: list[int]

    @property
    def forced(self) -> list[int]:
        """The ids to be fed: the last token of the continuation predicts nothing that is known."""
        return self.ids + self.continuation[:-1]

    @property
    def judged(self) -> slice:
        """The rows of `forced` that count: those that predict the continuation; all of the plain text."""
        return slice(len(self.ids) - 1 if self.continuation else 0, len(self.forced))


@dataclass(frozen=True, slots=True)
class Verdict:
    """How one engine did. Agreements are shares of the continued positions; KL is the mean in nats."""

    positions: int
    agrees_with_exact: float
    agrees_with_peer: float
    worst_gap: float
    worst_own_gap: float
    kl_text: float
    kl_continued: float


def judge(tops_of: Mapping[str, Sequence[Top]], cases: Sequence[Case], exact: Callable[[list[int]], Any]) -> Verdict:
    """`tops_of` holds each case's judged rows; `exact` turns ids into logits (tests/reference.py).

    A disagreement with the peer's text has a gap: how far apart the exact forward sees the two choices. `worst_gap` is
    the largest where the engine's choice is not the exact one too; where it is, the peer strayed (by up to 0.61 here).
    `worst_own_gap` is by how much the engine itself preferred its choice, over all disagreements.
    """
    divergences: dict[bool, list[float]] = {True: [], False: []}
    with_exact, against_peer, positions = 0, 0, 0
    gaps, own_gaps = [0.0], [0.0]
    for case in cases:
        tops = tops_of[case.name]
        rows = log_softmax(exact(case.forced)[case.judged])
        divergences[case.name == TEXT_NAME] += [kl(row, top) for row, top in zip(rows, tops, strict=True)]
        if case.continuation:
            positions += len(tops)
            first = [int(i) for i in rows.argmax(axis=1)]
            with_exact += sum(want == top[0][0] for want, top in zip(first, tops, strict=True))
            apart = disagreements(case.continuation, tops)
            against_peer += len(apart)
            strayed = [d for d in apart if d.chosen != first[d.position]]
            gaps += [abs(float(rows[d.position, d.chosen] - rows[d.position, d.expected])) for d in strayed]
            own_gaps += [d.gap for d in apart]
    return Verdict(
        positions,
        with_exact / positions,
        1.0 - against_peer / positions,
        max(gaps),
        max(own_gaps),
        float(np.mean(divergences[True])),
        float(np.mean(divergences[False])),
    )


def stored() -> tuple[list[Case], dict[str, Verdict], dict[str, Any]]:
    """The cases, the peers' verdicts and the provenance kept in tests/vectors/smollm2.json."""
    kept = json.loads(VECTORS.read_text())
    verdicts = {name: Verdict(**verdict) for name, verdict in kept["verdicts"].items()}
    return [Case(**case) for case in kept["cases"]], verdicts, kept["provenance"]


def ask_peer(server: llamacpp.Server, cases: Sequence[Case]) -> dict[str, Sequence[Top]]:
    """llama.cpp's distributions on given cases.

    Asked token by token where the continuation differs today, or where it holds parts of characters, whose
    distributions the server does not report.
    """
    found: dict[str, Sequence[Top]] = {}
    for case in cases:
        answer = server.complete(case.ids, len(case.continuation), N_TOP) if case.continuation else {}
        whole = bool(answer) and [p["id"] for p in answer["completion_probabilities"]] == answer["tokens"]
        if whole and answer["tokens"] == case.continuation:
            found[case.name] = llamacpp.tops(answer)
        else:
            found[case.name] = _step(server, case)
    return found


def _step(server: llamacpp.Server, case: Case) -> list[Top]:
    """One request per position, the prompt one token longer each time; the server keeps what it has seen.

    The bias makes the sampled token a whole character; distributions are reported before it.
    """
    ends = range(case.judged.start + 1, case.judged.stop + 1)
    more = {"cache_prompt": True, "logit_bias": [[_tokenize(server, "a")[0], 1000]]}
    return [llamacpp.tops(server.complete(case.forced[:n], 1, N_TOP, **more))[0] for n in ends]


def new_cases(server: llamacpp.Server) -> list[Case]:
    """Ids and greedy continuations of all prompts as this llama.cpp gives them, and the plain text's first ids."""
    cases = []
    for name, text in PROMPTS.items():
        ids = _tokenize(server, text)
        cases.append(Case(name, text, ids, server.complete(ids, N_CONTINUED)["tokens"]))
    return [*cases, Case(TEXT_NAME, TEXT, _tokenize(server, TEXT)[:N_TEXT], [])]


def _tokenize(server: llamacpp.Server, text: str) -> list[int]:
    body = {"content": text, "add_special": True, "parse_special": True}
    return list(llamacpp.post(f"{server.url}/tokenize", body)["tokens"])


def write(cases: Sequence[Case], verdicts: Mapping[str, Verdict], provenance: Mapping[str, Any]) -> None:
    """One case a line, so that a diff shows which answer changed."""
    head = {"provenance": provenance, "verdicts": {name: asdict(v) for name, v in verdicts.items()}}
    lines = ",\n".join(json.dumps(asdict(case), ensure_ascii=True) for case in cases)
    VECTORS.write_text(json.dumps(head, indent=1)[:-2] + ',\n "cases": [\n' + lines + "\n ]\n}\n")


def run_peer(args: argparse.Namespace) -> None:
    """Ask each peer; the first one's continuations are the ones stored and forced on all."""
    model = smollm2()
    exact = Reference(model).logits
    cases: list[Case] = [] if args.write else stored()[0]
    verdicts: dict[str, Verdict] = {}
    sources: dict[str, Any] = {}
    for program in [llamacpp.XLLAMACPP, *filter(None, [llamacpp.binary("llama-server", args.server)])]:
        # One thread: its threads spin while they wait, and on a busy machine two are slower than one.
        with llamacpp.Server(program, model, n_threads=1) as server:
            cases = cases or new_cases(server)
            label = program if program == llamacpp.XLLAMACPP else "llama-server"
            verdicts[label] = judge(ask_peer(server, cases), cases, exact)
        sources[label] = llamacpp.versions(program) | {"flags": "-t 1 -c 4096 -np 1, temperature 0, n_probs 200"}
        report(label, verdicts[label])
    if args.write:
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        facts = {"model": model.name, "sha256": digest(model), "date": today, "peers": sources}
        write(cases, verdicts, facts | {"continuations_by": next(iter(sources)), "written_by": "benchmarks.accuracy"})


def run_ours(args: argparse.Namespace) -> None:
    """Ids by `colibri tokenize`, distributions by `colibri logits`: what a user can run."""
    cases, verdicts, _ = stored()
    model = smollm2()
    for name, verdict in verdicts.items():
        report(name, verdict)
    tops = {case.name: colibri_logits(model, case.forced, args.flags)[case.judged] for case in cases}
    verdicts["colibri"] = judge(tops, cases, Reference(model).logits)
    report("colibri", verdicts["colibri"])
    found = {name: asdict(verdict) for name, verdict in verdicts.items()}
    print(save("accuracy", stamp(model) | {"version": ours.our_version(), "verdicts": found}), file=sys.stderr)


def colibri_logits(model: Path, ids: Sequence[int], flags: Sequence[str] = ()) -> list[Top]:
    """`colibri logits` of one sequence, as tops per id."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(",".join(map(str, ids)))
        file.flush()
        words = ["-m", str(model), "--tokens-file", file.name, "--top", str(N_TOP), "--json", *flags]
        done = subprocess.run(ours.command("logits", *words), stdout=subprocess.PIPE, text=True, check=True)
    return [[(i, p) for i, p in position["top"]] for position in json.loads(done.stdout)["positions"]]


def report(name: str, v: Verdict) -> None:
    print(
        f"{name:14s} {v.positions} continued positions: agrees with float32 {v.agrees_with_exact:.4f}, with llama.cpp's"
        f" text {v.agrees_with_peer:.4f} (worst gap {v.worst_gap:.3f}, own {v.worst_own_gap:.3f});"
        f" KL text {v.kl_text:.5f}, continued {v.kl_continued:.5f}",
        file=sys.stderr,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Judge next-token distributions against the exact float32 forward.")
    parser.add_argument("who", choices=("peer", "ours"))
    parser.add_argument("--write", action="store_true", help="peer: ask anew and write tests/vectors/smollm2.json")
    parser.add_argument("--server", help="peer: a llama-server binary (or PEER_SERVER, or PATH)")
    parser.add_argument("flags", nargs="*", help="ours: further flags of colibri logits, after --")
    args = parser.parse_args()
    (run_peer if args.who == "peer" else run_ours)(args)


if __name__ == "__main__":
    main()
