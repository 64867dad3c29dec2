"""POST /tokenize, /detokenize, /apply-template, as llama-server has them. Not here: the tokenizer, the templates."""

from typing import Any

from aiohttp import web

from appliance.api.body import read_object
from appliance.api.fields import parse
from appliance.api.schema import ApplyTemplateRequest, DetokenizeRequest, TokenizeRequest
from appliance.api.services import SERVICES
from appliance.api.sse import dumps
from appliance.api.tools import as_sent
from engine.errors import InvalidParameter


async def tokenize(request: web.Request) -> web.Response:
    """`{"tokens": [id, …]}`, or with_pieces `{"tokens": [{"id", "piece"}, …]}`, a piece without whole characters being
    a list of its bytes."""
    services = request.app[SERVICES]
    body, _ = await read_object(request, services.body_cap)
    ask = parse(TokenizeRequest, body)
    ids = await services.admission.tokens(
        ask.content, add_special=bool(ask.add_special), parse_special=ask.parse_special is not False
    )
    if not ask.with_pieces:
        return _json({"tokens": ids})
    vocab = services.admission.text.vocab
    return _json({"tokens": [{"id": token, "piece": _piece(vocab.bytes_of(token))} for token in ids]})


async def detokenize(request: web.Request) -> web.Response:
    services = request.app[SERVICES]
    body, _ = await read_object(request, services.body_cap)
    ask = parse(DetokenizeRequest, body)
    text = services.admission.text
    for token in ask.tokens:
        if not 0 <= token < text.vocab.n_vocab:
            raise InvalidParameter(f"token id {token} is not one of the {text.vocab.n_vocab}", param="tokens")
    return _json({"content": text.decode(ask.tokens, special=True)})


async def apply_template(request: web.Request) -> web.Response:
    """The prompt that /v1/chat/completions would read for these messages."""
    services = request.app[SERVICES]
    body, _ = await read_object(request, services.body_cap)
    ask = parse(ApplyTemplateRequest, body)
    services.model.check(ask.model)
    prompt = await services.admission.render(
        [message.plain() for message in ask.messages],
        tools=as_sent(body["tools"]) if ask.tools else None,
        extra=ask.chat_template_kwargs,
        add_generation_prompt=ask.add_generation_prompt is not False,
    )
    return _json({"prompt": prompt})


def _piece(raw: bytes) -> str | list[int]:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return list(raw)


def _json(value: Any) -> web.Response:
    return web.Response(body=dumps(value), content_type="application/json")
