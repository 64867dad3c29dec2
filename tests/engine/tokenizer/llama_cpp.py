"""llama.cpp as the judge of ids: its own server on a model file. Not here: what is asked of it."""

import json
from collections.abc import Sequence
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

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
        where = urlsplit(self._server.listening_address)
        assert where.hostname
        # One connection for thousands of questions; http.client opens it again where the server has closed it.
        self._line = HTTPConnection(where.hostname, where.port, timeout=60)

    def _ask(self, route: str, body: object) -> dict[str, object]:
        self._line.request("POST", route, json.dumps(body), {"Content-Type": "application/json"})
        answer = self._line.getresponse()
        found: dict[str, object] = json.loads(answer.read())
        assert answer.status == 200, found
        return found

    def encode(self, text: str, add_special: bool = False, parse_special: bool = True) -> list[int]:
        found = self._ask("/tokenize", {"content": text, "add_special": add_special, "parse_special": parse_special})[
            "tokens"
        ]
        assert isinstance(found, list)
        return found

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._ask("/detokenize", {"tokens": list(ids)})["content"])
