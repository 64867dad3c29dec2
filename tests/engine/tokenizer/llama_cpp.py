"""llama.cpp as the judge of ids: its own server on a model file. Not here: what is asked of it."""

import json
from collections.abc import Sequence
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import xllamacpp

BETWEEN = -7  # no token's id


class LlamaCpp:
    """One model file in llama.cpp; close() by dropping the object."""

    def __init__(self, path: str | Path) -> None:
        params = xllamacpp.CommonParams()
        params.model.path = str(path)
        params.n_ctx = 256
        params.n_parallel = 1
        params.warmup = False
        params.fit_params = False  # it reads the vocabulary a second time
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

    def encode_all(self, texts: Sequence[str], parse_special: bool) -> list[list[int]]:
        """The ids of each text, in one question: numbers between the texts come back as they are."""
        asked = [part for text in texts for part in (text, BETWEEN)]
        body = {"content": asked, "add_special": False, "parse_special": parse_special}
        found = self._ask("/tokenize", body)["tokens"]
        assert isinstance(found, list)
        out: list[list[int]] = [[]]
        for token_id in found:
            if token_id == BETWEEN:
                out.append([])
            else:
                out[-1].append(token_id)
        return out[:-1]

    def pieces(self, ids: Sequence[int]) -> list[bytes]:
        """The bytes of each token, special ones by name."""
        found = self._ask("/tokenize", {"content": list(ids), "with_pieces": True})["tokens"]
        assert isinstance(found, list)
        pieces = [each["piece"] for each in found]
        return [piece.encode() if isinstance(piece, str) else bytes(piece) for piece in pieces]

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._ask("/detokenize", {"tokens": list(ids)})["content"])
