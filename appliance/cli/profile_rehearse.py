"""`colibri profile rehearse`: the longest input that a profile takes, for real, before somebody waits for it. Not here:
the planner's forecast (engine/planner), measuring speed in general (bench.py).

    --json  {"name", "rev", "etag", "time", "model", "model_digest", "load_mode", "n_ctx", "parallel", "threads",
             "is_own_text", "n_prompt", "n_generated", "prompt_s", "prompt_tok_s", "tok_s", "planned_tok_s",
             "peak_bytes", "planned_bytes", "budget_bytes", "read_bytes", "major_faults"}

All sequences of the profile are filled at once, each with the whole input. `tok_s` is of all of them together, at the
end of their contexts. Memory is this process's, which loads the model exactly as a service's engine would.
"""

import argparse
import json
import time
from collections.abc import Iterator
from typing import Any

from appliance.cli.flags import data_dir
from appliance.cli.local import BadInputFile, Local, read_text
from appliance.cli.profile_files import settings_of, store_of
from appliance.cli.progress import Progress
from appliance.machine.peak import Peak
from appliance.rehearsals import keep
from appliance.settings import Settings
from engine.budget import mib
from engine.errors import ContextLengthExceeded, DoesNotFit, UsageError

TOKENS = 32
MOST_TOKENS = 4096
# Plain words, so that a vocabulary of any size makes an ordinary number of tokens of them.
PASSAGE = (
    "The committee met on the second day of the month and heard the report of its secretary. The costs of the bridge "
    "had risen, the river was high in spring, and the builders asked for three more weeks. It was decided to pay what "
    "was owed, to ask the engineers about the western pillar, and to open the road for carts before the harvest. "
)


def rehearse(args: argparse.Namespace) -> int:
    """Run it, say what it took, note it in the data folder; exit code 4 when it took more than there was."""
    if not 1 <= args.tokens <= MOST_TOKENS:
        raise UsageError(f"--tokens {args.tokens}: 1 to {MOST_TOKENS} is possible")
    text = read_text(args.prompt_file) if args.prompt_file else None
    profile = store_of(args).load(args.name)
    settings = settings_of(args, profile.name, dict(profile.values))
    if text is None:  # guesses are right all the time in a text that repeats itself
        settings = settings.model_copy(update={"spec_type": "none"})
    with Peak() as peak:
        local = Local(settings, is_served=True)
        found = _Rehearsal(local, settings, text, args.tokens).run()
        local.close()
    info = local.engine.info
    found = {
        "name": profile.name, "rev": profile.rev, "etag": profile.etag, "time": round(time.time(), 3),
        "model": local.path.name, "model_digest": info.model_digest, "load_mode": info.load_mode, "n_ctx": info.n_ctx,
        "parallel": info.n_parallel, "threads": info.threads, "is_own_text": text is not None, **found,
        "planned_tok_s": next((row[1] for row in info.plan if row[0] == "tok_s_full"), None),
        "peak_bytes": peak.n_bytes, "planned_bytes": info.private_bytes, "budget_bytes": info.budget_bytes,
    }  # fmt: skip
    keep(data_dir(args), profile.name, found)
    if args.json:
        print(json.dumps(found))
    else:
        for line in _lines(found):
            print(line)
    if peak.n_bytes > info.budget_bytes:
        raise DoesNotFit(
            f"{profile.name} took {mib(peak.n_bytes)} and {mib(info.budget_bytes)} are available; lower ctx_size or "
            "parallel, or take a smaller cache type"
        )
    return 0


class _Rehearsal:
    """One run on a loaded engine."""

    def __init__(self, local: Local, settings: Settings, text: str | None, n_tokens: int) -> None:
        self._local, self._settings, self._text, self._n_tokens = local, settings, text, n_tokens

    def run(self) -> dict[str, Any]:
        ids = self._ids()
        progress = Progress()
        found: dict[str, Any] = {}
        for words, done, total in self._local.stream(lambda: self._steps(ids, found)):
            progress.share(words, done, total)
        progress.close()
        return found

    def _ids(self) -> list[int]:
        """The prompt: the caller's text as a chat would send it, else a passage until the context is full."""
        local, n_ctx = self._local, self._local.engine.info.n_ctx
        if self._text is None:
            once = local.text.encode(PASSAGE, add_special=True, parse_special=False)
            n = max(1, n_ctx - self._n_tokens)
            return (once * (n // max(1, len(once)) + 1))[:n]
        if local.text.chat_template is not None:
            ids = local.chat_ids([{"role": "user", "content": self._text}])
        else:
            ids = local.text.encode(self._text, add_special=True, parse_special=False)
        if not ids:
            raise BadInputFile("the prompt file has no tokens; give it some text")
        if len(ids) >= n_ctx:
            raise ContextLengthExceeded(
                f"the prompt has {len(ids):,} tokens and the profile's context {n_ctx:,}, so that nothing is left for "
                "an answer; raise its ctx_size or shorten the prompt"
            )
        return ids

    def _steps(self, ids: list[int], found: dict[str, Any]) -> Iterator[tuple[str, int, int]]:
        """Words for the progress line, how much of them is done; `found` is filled at the end."""
        from engine.sampling import Sampling

        engine, n_seqs = self._local.engine, self._local.engine.info.n_parallel
        n_tokens = min(self._n_tokens, engine.info.n_ctx - len(ids))
        sampling, before, start = Sampling(temperature=0.0), engine.spent(), time.perf_counter()
        seqs = [engine.open(ids, sampling, n_tokens) for _ in range(n_seqs)]
        try:
            read_s, at_read = 0.0, 0
            while left := [seq for seq in seqs if seq.finish is None]:
                outs = engine.step_many(left)
                if outs[0].cancelled:
                    return
                n_made = sum(seq.n_generated for seq in seqs)
                if not read_s and all(seq.n_generated for seq in seqs):
                    read_s, at_read = time.perf_counter() - start, n_made
                if read_s:
                    yield "answering", n_made, n_tokens * n_seqs
                else:
                    yield "reading the prompt", sum(seq.n_read for seq in seqs), len(ids) * n_seqs
            took_s = time.perf_counter() - start - read_s
        finally:
            for seq in seqs:
                engine.close(seq)
        spent = engine.spent().since(before)
        found |= {
            "n_prompt": len(ids), "n_generated": n_tokens, "prompt_s": round(read_s, 3),
            "prompt_tok_s": round(len(ids) * n_seqs / read_s, 3),
            "tok_s": round((n_made - at_read) / took_s, 3) if n_made > at_read else None,
            "read_bytes": spent.read_bytes, "major_faults": spent.major_faults,
        }  # fmt: skip


def _lines(found: dict[str, Any]) -> Iterator[str]:
    what = "your text" if found["is_own_text"] else "made-up text; --prompt-file F rehearses with yours"
    many = f" in each of {found['parallel']} sequences" if found["parallel"] > 1 else ""
    yield f"profile      {found['name']} rev {found['rev']}, {found['model']}, {found['load_mode']}"
    yield f"input        {found['n_prompt']:,} of {found['n_ctx']:,} tokens{many}, {what}"
    peak, planned, budget = (mib(found[f"{name}_bytes"]) for name in ("peak", "planned", "budget"))
    yield f"peak memory  {peak}, planned {planned}, available {budget}"
    yield f"prompt       {found['prompt_s']:,.1f} s, {found['prompt_tok_s']:,.1f} tok/s"
    planned_tok_s = f", planned {found['planned_tok_s']:,.2f}" if found["planned_tok_s"] else ""
    if found["tok_s"] is not None:
        yield f"at the end   {found['tok_s']:,.2f} tok/s{planned_tok_s}"
    if found["read_bytes"]:
        yield f"read         {mib(found['read_bytes'])} from the model file"
    if found["major_faults"]:
        yield f"faults       {found['major_faults']:,} pages read by the kernel"
