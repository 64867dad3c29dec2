"""llama.cpp as the judge of ids: its own server on a model file. Not here: what is asked of it."""

import json
import urllib.request
from collections.abc import Sequence
from pathlib import Path

import xllamacpp


class LlamaCpp:
    """One model file in llama.cpp; close() by dropping the object."""

    def __init__(self, path: str | Path) -> None:
        params = xllamacpp.CommonParams()
        params.model.path = str(path)
        params.n_ctx = 256
        params.n_parallel = 1
        params.warmup = False
        params.cpuparams.n_threads = 1
        params.cpuparams_batch.n_threads = 1
        params.verbosity = 0
        self._server = xllamacpp.Server(params)

    def _ask(self, route: str, body: object) -> dict[str, object]:
        url = f"{self._server.listening_address}{route}"
        request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            found: dict[str, object] = json.load(answer)
            return found

    def encode(self, text: str, add_special: bool = False, parse_special: bool = True) -> list[int]:
        found = self._ask("/tokenize", {"content": text, "add_special": add_special, "parse_special": parse_special})[
            "tokens"
        ]
        assert isinstance(found, list)
        return found

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._ask("/detokenize", {"tokens": list(ids)})["content"])
