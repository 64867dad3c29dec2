"""llama.cpp's distribution after every prefix of some ids, of many model files, from one process. Not here: its server.

A child holds the package xllamacpp, whose assertions end the process: the caller then learns which file it was.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Question:
    """`ends`: how many of `ids` are read before each distribution that is wanted. `whole`: an id whose text is a whole
    character; it is made the token that follows, because halves of characters are not reported. `kv`: f16 or f32.
    """

    path: str
    ids: list[int]
    ends: list[int]
    n_vocab: int
    whole: int
    kv: str = "f16"


_CHILD = """
import json, sys, xllamacpp
for line in sys.stdin:
    q = json.loads(line)
    p = xllamacpp.CommonParams()
    p.model.path, p.n_ctx, p.cpuparams.n_threads, p.n_parallel, p.verbosity = q["path"], 256, 1, 1, 0
    p.cpuparams_batch.n_threads, p.warmup, p.port = 1, False, 0
    if q["kv"] == "f32":
        p.cache_type_k = p.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
        p.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    server, rows = xllamacpp.Server(p), []
    for n in q["ends"]:
        answer = server.handle_completions({"prompt": q["ids"][:n], "n_predict": 1, "temperature": 0,
            "logprobs": q["n_vocab"], "n_probs": q["n_vocab"], "logit_bias": [[q["whole"], 1000]]})
        (told,) = answer["choices"][0]["logprobs"]["content"]
        found = {t["id"]: t["logprob"] for t in told["top_logprobs"]}
        rows.append([found[i] for i in range(q["n_vocab"])])
    del server
    print("answer", json.dumps(rows), flush=True)
"""


def peer_log_probs(questions: Sequence[Question]) -> Iterator[NDArray[np.float64]]:
    """(len(ends), n_vocab) log-probabilities of each question in turn; RuntimeError names the file it failed on."""
    child = subprocess.Popen(
        [sys.executable, "-c", _CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True,
    )  # fmt: skip
    assert child.stdin is not None and child.stdout is not None
    try:
        for question in questions:
            child.stdin.write(json.dumps(asdict(question)) + "\n")
            child.stdin.flush()
            line = next((line for line in child.stdout if line.startswith("answer ")), None)
            if line is None:
                raise RuntimeError(f"llama.cpp could not compute {Path(question.path).name}; its process ended")
            yield np.array(json.loads(line.removeprefix("answer ")))
    finally:
        child.kill()
        child.wait()
        child.stdin.close()
        child.stdout.close()
