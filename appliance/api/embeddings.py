"""POST /v1/embeddings: texts to vectors of length 1, in OpenAI's shape. Not here: how a vector is made (engine)."""

import math
import struct
from base64 import b64decode, b64encode
from typing import Any

from aiohttp import web

from appliance.admission import Prompt, Wish
from appliance.api.body import read_object
from appliance.api.completions import begun, collected, ids_keep_their_model
from appliance.api.fields import parse
from appliance.api.schema import EmbeddingsRequest
from appliance.api.services import SERVICES
from appliance.api.sse import dumps
from appliance.request import Done
from engine.errors import InvalidParameter, Unavailable

MOST_TEXTS = 2048
"""As OpenAI allows."""


async def embed(request: web.Request) -> web.Response:
    """The vector of the given text, or of each of several, computed one after the other."""
    services = request.app[SERVICES]
    body, raw = await read_object(request, services.body_cap)
    ask = parse(EmbeddingsRequest, body)
    given = ask.inputs()
    if len(given) > MOST_TEXTS:
        raise InvalidParameter(f"{len(given)} texts are more than {MOST_TEXTS}; send fewer at once", param="input")
    check_model = ids_keep_their_model(services, given)

    async def prompts() -> list[Prompt]:
        return [Prompt(await services.admission.prompt_ids(text)) for text in given]

    def wished() -> Wish:
        check_model("input")
        if services.supervisor.info.get("pooling") == "rank":
            text = "the model ranks and makes no embeddings; send its texts to /v1/rerank"
            raise InvalidParameter(text, param="model")
        return Wish(model=services.model.check(ask.model), max_tokens=1, wants_embedding=True)

    answer = await begun(request, raw, ask, wished, prompts)
    dones = await collected(request, answer)
    data = [_entry(i, dones[i], ask) for i in sorted(dones)]
    n = sum(done.n_prompt for done in dones.values())
    usage = {"prompt_tokens": n, "total_tokens": n}
    whole = {"object": "list", "data": data, "model": answer.model, "usage": usage}
    return web.Response(body=dumps(whole), content_type="application/json")


def _entry(index: int, done: Done, ask: EmbeddingsRequest) -> dict[str, Any]:
    if done.embedding is None:  # a hand-over to a person, who makes no vectors either
        raise Unavailable("no model is here that could make a vector now; try again later")
    floats = cut(b64decode(done.embedding), ask.dimensions)
    vector: str | list[float]
    if ask.encoding_format == "base64":
        vector = b64encode(floats).decode()
    else:  # nine digits are a float32 exactly
        vector = [float(f"{value:.9g}") for value in struct.unpack(f"<{len(floats) // 4}f", floats)]
    return {"object": "embedding", "index": index, "embedding": vector}


def cut(floats: bytes, n: int | None) -> bytes:
    """The first n of little-endian float32 values, of length 1 again; InvalidParameter when there are not so many."""
    n_all = len(floats) // 4
    if n is None or n == n_all:
        return floats
    if n > n_all:
        raise InvalidParameter(f"dimensions is {n}, and the model's vectors have {n_all} values", param="dimensions")
    values = struct.unpack(f"<{n}f", floats[: 4 * n])
    length = math.sqrt(math.fsum(value * value for value in values)) or 1.0
    return struct.pack(f"<{n}f", *(value / length for value in values))
