"""POST /v1/rerank: documents in the order in which they answer a query. Not here: how a score is made (engine).

A pair is read as one text: [CLS] query [SEP] document [SEP], and with two separators between for XLM-RoBERTa's kin;
names of special tokens in either text are text. `relevance_score` is the logistic function of the model's own
score, between 0 and 1, and `score` that score itself, as llama-server tells it.
"""

import asyncio
import math
import struct
from base64 import b64decode
from typing import Any

from aiohttp import web

from appliance.admission import Prompt, Wish
from appliance.api.body import read_object
from appliance.api.completions import LOOK_S, Look, begun
from appliance.api.fields import parse
from appliance.api.generation import END
from appliance.api.rerank_schema import RerankRequest
from appliance.api.services import SERVICES, Services
from appliance.api.sse import dumps
from appliance.request import Done
from engine.errors import InvalidParameter, Unavailable
from engine.tokenizer.vocab import Vocab


async def rerank(request: web.Request) -> web.Response:
    """The best documents first; equal ones in the order given."""
    services = request.app[SERVICES]
    body, raw = await read_object(request, services.body_cap)
    ask = parse(RerankRequest, body)

    def wished() -> Wish:
        model = services.model.check(ask.model)
        check_ranks(services)
        return Wish(model=model, max_tokens=1, wants_embedding=True)

    async def prompts() -> list[Prompt]:
        encode, vocab = services.admission.encode, services.admission.text.vocab
        query = await encode(ask.query, add_special=True, parse_special=False)
        texts = [await encode(text, add_special=True, parse_special=False) for text in ask.texts()]
        return [Prompt(joined(vocab, query, text)) for text in texts]

    dones: dict[int, Done] = {}
    answer, look = await begun(request, raw, ask, wished, prompts), Look(request)
    async with answer.view() as view:
        while (item := await view.next(LOOK_S)) is not END:
            look.look()
            if item is not None and isinstance(item[1], Done):
                dones[item[0]] = item[1]
    told = (_result(i, done, ask) for i, done in dones.items())
    results = sorted(told, key=lambda one: (-one["score"], one["index"]))
    n = sum(done.n_prompt for done in dones.values())
    usage = {"prompt_tokens": n, "total_tokens": n}
    whole = {"object": "list", "model": answer.model, "results": results[: ask.top_n], "usage": usage}
    loop = asyncio.get_running_loop()
    return web.Response(body=await loop.run_in_executor(None, dumps, whole), content_type="application/json")


def joined(vocab: Vocab, query: list[int], text: list[int]) -> list[int]:
    """The ids of a pair, from those of its halves with their begin and end tokens."""
    between = [vocab.separator_id] if vocab.separates_twice and vocab.separator_id is not None else []
    return [*query, *between, *(text[1:] if text[:1] == [vocab.begin_id] else text)]


def check_ranks(services: Services) -> None:
    """Raise InvalidParameter when the model in force is none that ranks."""
    info = services.supervisor.info
    if info and info.get("pooling") != "rank":
        text = "the model does not rank: its file has no ranking head (pooling_type rank); serve a reranker instead"
        raise InvalidParameter(text, param="model")


def _result(index: int, done: Done, ask: RerankRequest) -> dict[str, Any]:
    if done.embedding is None:  # a hand-over to a person
        raise Unavailable("no model is here that could rank now; try again later")
    (score,) = struct.unpack("<f", b64decode(done.embedding)[:4])
    relevance = 1 / (1 + math.exp(-score)) if score >= 0 else math.exp(score) / (1 + math.exp(score))
    told = {"relevance_score": float(f"{relevance:.9g}"), "score": float(f"{score:.9g}")}
    return {"index": index, **told, **ask.document(index)}
