"""POST /v1/chat/completions and /v1/completions: from the body to the answer. Not here: fields, shapes, the queue.

Headers of a stream leave with the engine's first sign of life or after PATIENCE_S, so that a refusal that comes at once
still has its status; from then on an error is an event.
"""

import asyncio
import socket
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

from aiohttp import web

from appliance.admission import Prompt, Wish
from appliance.api.auth import check_scope
from appliance.api.body import read_object
from appliance.api.chat_shape import ChatShape
from appliance.api.errors import public
from appliance.api.fields import parse
from appliance.api.generation import END, Generation, Identity, Limits, View, place
from appliance.api.lanes import GENERATION, deadline_of, lane_of
from appliance.api.preconditions import idempotency_key
from appliance.api.rerank_schema import RerankRequest
from appliance.api.schema import MAX_CHOICES, Body, ChatRequest, CompletionRequest, EmbeddingsRequest, Sampled
from appliance.api.services import KEY, REQUEST_ID, SERVICES, Services
from appliance.api.shapes import Answer, CompletionShape, Shape
from appliance.api.sse import EventStream, dumps
from appliance.api.structured import closed_set, grammar_of, letters_of
from appliance.api.tools import chosen
from appliance.request import Done, GenerateRequest, Piece, Prefill, Queued
from engine.errors import ColibriError, ContextLengthExceeded, InvalidParameter, ModelNotFound, TemplateError
from engine.sampling import Sampling

PATIENCE_S = 5.0
LOOK_S = 1.0
"""How often a silent client's connection is looked at."""
TCP_ESTABLISHED = 1
SAMPLING_FIELDS = (
    "temperature", "top_k", "top_p", "min_p", "typical_p", "repeat_penalty", "repeat_last_n", "presence_penalty",
    "frequency_penalty",
)  # fmt: skip
OTHERS_MAY = (ContextLengthExceeded, ModelNotFound, TemplateError)
"""What one profile refuses and another may serve."""
NAMES = {
    ChatRequest: ("chatcmpl", "messages"), CompletionRequest: ("cmpl", "prompt"), EmbeddingsRequest: ("embd", "input"),
    RerankRequest: ("rank", "documents"),
}  # fmt: skip
"""What an answer's id begins with, and the field that what is wrong with its text is told of."""
Prompts = Callable[[], Awaitable[list[Prompt]]]


async def chat(request: web.Request) -> web.StreamResponse:
    """One assistant turn after the given messages."""
    services = request.app[SERVICES]
    body, raw = await read_object(request, services.body_cap)
    ask = parse(ChatRequest, body)
    n_top = ask.top_logprobs or 0 if ask.logprobs else ask.n_probs or None
    notes = ["store is accepted and changes nothing here"] if ask.store else []
    # The tools as they were sent: templates write them into the prompt.
    toolset = chosen(body["tools"] if ask.tools else None, ask.tool_choice, ask.parallel_tool_calls)
    grammar = await grammar_for(services, ask)
    if grammar and toolset:
        raise InvalidParameter("an answer that must fit something cannot call tools; leave tools out", param="tools")

    closed = closed_set(ask) if grammar and is_weighed(ask) else None

    async def prompts() -> list[Prompt]:
        messages = [message.plain() for message in ask.messages]
        splits = ask.reasoning_format != "none"
        extra = ask.variables()
        if grammar:
            extra.setdefault("enable_thinking", False)
        made = await services.admission.chat(
            messages, extra=extra, toolset=toolset, splits=splits, is_bound=bool(grammar)
        )
        return [made._replace(options=await services.admission.options(closed.texts)) if closed else made]

    def wished() -> Wish:
        wish = wish_for(services, ask, n_top, grammar)
        return replace(wish, weighs_end=closed.weighs_end, is_relative=True) if closed else wish

    generation = await begun(request, raw, ask, wished, prompts)
    common = _common(generation, ask, n_top)
    shape = ChatShape(**common, notes=tuple(notes), service_tier=ask.service_tier, closed=closed)
    return await (_stream if ask.stream else respond)(request, generation, shape)


async def complete(request: web.Request) -> web.StreamResponse:
    """Text after the given prompt, or after each of several."""
    services = request.app[SERVICES]
    body, raw = await read_object(request, services.body_cap)
    ask = parse(CompletionRequest, body)
    given = ask.prompts()
    if len(given) * (ask.n or 1) > MAX_CHOICES:
        text = f"{len(given)} prompts with {ask.n or 1} answers each are more than {MAX_CHOICES} answers; send fewer"
        raise InvalidParameter(text, param="prompt")

    async def prompts() -> list[Prompt]:
        return [Prompt(await services.admission.prompt_ids(prompt)) for prompt in given]

    grammar = await grammar_for(services, ask)
    check_model = ids_keep_their_model(services, given)

    def wished() -> Wish:
        check_model("prompt")
        return wish_for(services, ask, ask.logprobs, grammar)

    generation = await begun(request, raw, ask, wished, prompts)
    if ask.echo and not generation.echoes:  # once: a viewer who comes after a swap is told the same
        decode = services.admission.text.decode
        generation.echoes = tuple(prompt if isinstance(prompt, str) else decode(prompt) for prompt in given)
    shape = CompletionShape(**_common(generation, ask, ask.logprobs), echoes=generation.echoes)
    return await (_stream if ask.stream else respond)(request, generation, shape)


def ids_keep_their_model(services: Services, given: Sequence[str | list[int]]) -> Callable[[str], None]:
    """What raises ModelNotFound, of the field it is given, once token ids would be read by another model than now."""
    pinned = None if all(isinstance(prompt, str) for prompt in given) else services.swapper.in_force

    def check(field: str) -> None:
        if pinned is not None and pinned.identity != services.swapper.in_force.identity:
            text = f"the {field}'s token ids are of '{pinned.model.id}', and another model is served now; send text"
            raise ModelNotFound(text, param=field)

    return check


async def grammar_for(services: Services, ask: Sampled) -> str:
    """What the answer must fit, compiled once to know that it can be; in a thread, since a schema can be hostile."""

    def made() -> str:
        grammar = grammar_of(ask)
        if grammar and (letters := services.admission.unwritable(letters_of(ask))):
            raise InvalidParameter(
                f"the answer may have to hold {letters[0]!r}, which the model's vocabulary cannot write; leave it out"
            )
        return grammar

    return await asyncio.get_running_loop().run_in_executor(services.admission.threads, made)


def is_weighed(ask: ChatRequest) -> bool:
    """Whether the likeliest of a few possible answers is what was asked for: not where several are to be drawn, or
    tokens are to be shown."""
    is_drawn = ask.temperature is not None and ask.temperature > 0
    return not (is_drawn or (ask.n or 1) > 1 or ask.logprobs or ask.n_probs or ask.stops() or ask.logit_bias)


def wish_for(services: Services, ask: Sampled, n_top: int | None, grammar: str) -> Wish:
    sampling: dict[str, Any] = {name: getattr(ask, name) for name in SAMPLING_FIELDS if getattr(ask, name) is not None}
    if grammar:
        sampling["grammar"] = grammar
    if ask.seed is not None:
        sampling["seed"] = None if ask.seed == -1 else ask.seed
    if ask.logit_bias:
        sampling["logit_bias"] = {int(token): bias for token, bias in ask.logit_bias.items()}
    limits = [limit for limit in (ask.max_tokens, ask.max_completion_tokens) if limit is not None and limit >= 0]
    return Wish(
        model=services.model.check(ask.model),
        max_tokens=min(limits, default=None),
        stop=ask.stops(),
        sampling=sampling,
        n=ask.n or 1,
        n_logprobs=0 if n_top is None else max(1, n_top),
        ignore_eos=bool(ask.ignore_eos),
        skip_special=ask.skip_special_tokens is not False,
        return_progress=bool(ask.return_progress),
    )


def _common(generation: Generation, ask: Sampled, n_top: int | None) -> dict[str, Any]:
    with_usage = ask.stream_options is not None and bool(ask.stream_options.include_usage)
    return {"answer": generation, "n": ask.n or 1, "n_top": n_top, "with_usage": with_usage}


async def begun(
    request: web.Request, raw: bytes, ask: Body, wished: Callable[[], Wish], prompts: Prompts
) -> Generation:
    """The answer to view: one that is attached to, or a new one."""
    request[GENERATION] = generation = await _begun(request, raw, ask, wished, prompts)
    return generation


async def _begun(
    request: web.Request, raw: bytes, ask: Body, wished: Callable[[], Wish],
    prompts: Prompts,
) -> Generation:  # fmt: skip
    services = request.app[SERVICES]
    services.check_open()
    lane, deadline_ms = lane_of(request), deadline_of(request)
    identity = _identity(request, raw)
    if (running := services.generations.find(identity)) is not None:
        return running
    prefix, field = NAMES.get(type(ask), ("score", "context"))
    name = f"{prefix}-{uuid.uuid4().hex}"

    async def make() -> list[GenerateRequest]:
        check_scope(services, request[KEY])
        wish = replace(wished(), lane=lane, deadline_ms=deadline_ms)
        requests: list[GenerateRequest] = []
        try:
            for i, prompt in enumerate(await prompts()):
                requests += services.admission.requests(prompt.ids, wish, f"{name}-{i}", prompt.speech, prompt.options)
        except (ContextLengthExceeded, InvalidParameter) as error:
            error.param = field if error.param in (None, "prompt") else error.param
            raise
        return requests

    while True:
        before = services.epoch
        try:
            requests = await make()
        except ColibriError as error:
            if services.epoch != before:
                continue  # that was the word of a profile which serves no more
            if not services.is_undecided or not isinstance(error, OTHERS_MAY):
                raise
            # Another profile may serve it: it waits as it is, and is judged by whoever serves in the end.
            waits = GenerateRequest(id=f"{name}-0-0", prompt_ids=[], sampling=Sampling(), model=services.model.id)
            requests = [replace(waits, lane=lane, deadline_ms=deadline_ms)]
        # Another request with this identity may have come in while this one was tokenised, or the end of the server.
        if (running := services.generations.find(identity)) is not None:
            return running
        services.check_open()
        if services.epoch == before:
            break
    decode_ms = ask.t_max_predict_ms if isinstance(ask, Sampled) else None
    limits = Limits(services.settings.timeout, decode_ms / 1000 if decode_ms is not None and decode_ms > 0 else None)
    return services.generations.start(name, identity, requests, limits, make)


def _identity(request: web.Request, raw: bytes) -> Identity:
    key = idempotency_key(request)
    retries = request.headers.get("x-stainless-retry-count", "0")
    is_retry = retries.isdecimal() and int(retries[:4]) >= 1
    return Identity(request[KEY].id, sha256(request.path.encode() + b"\0" + raw).digest(), key, is_retry)


async def collected(request: web.Request, generation: Generation) -> dict[int, Done]:
    """The ends of all answers, for routes that tell of no text."""
    look, dones = Look(request), dict[int, Done]()
    async with generation.view() as view:
        while (item := await view.next(LOOK_S)) is not END:
            look.look()
            if item is not None and isinstance(item[1], Done):
                dones[item[0]] = item[1]
    return dones


async def respond(request: web.Request, generation: Generation, shape: Shape) -> web.StreamResponse:
    answers: dict[int, Answer] = {}
    look = Look(request)
    async with generation.view() as view:
        while (item := await view.next(LOOK_S)) is not END:
            look.look()
            if item is None:
                continue
            index, event = item
            if isinstance(event, Piece | Done) and index not in answers:  # not before: who waits has no model yet
                answers[index] = shape.new_answer(index)
            if isinstance(event, Piece):
                answers[index].add(event)
            elif isinstance(event, Done):
                answers[index].end(event)
    return web.Response(body=dumps(shape.plain(answers)), content_type="application/json")


async def _stream(request: web.Request, generation: Generation, shape: Shape) -> web.StreamResponse:
    return await stream_to(EventStream(request), request, generation, shape)


async def stream_to(
    stream: EventStream, request: web.Request, generation: Generation, shape: Shape
) -> web.StreamResponse:
    """The answer as events of `stream`, which knows how one is written."""
    try:
        async with generation.view() as view:
            dones = await _relay(request, view, generation, shape, stream)
        if shape.with_usage:
            await stream.send(shape.usage_chunk(dones))
        return await stream.done()
    except ConnectionError:
        raise
    except Exception as error:
        if not stream.is_open:
            raise
        return await stream.fail(public(error, request[REQUEST_ID]))


async def _relay(
    request: web.Request, view: View, generation: Generation, shape: Shape, stream: EventStream
) -> dict[int, Done]:
    look = Look(request)
    opened: set[int] = set()
    dones: dict[int, Done] = {}
    shows_progress = bool(generation.requests) and generation.requests[0].return_progress
    while (item := await view.next(LOOK_S)) is not END:
        look.look()
        if item is None or isinstance(item[1], Queued):  # an ETA that goes down is news every second
            if stream.is_open or look.waited() >= PATIENCE_S:
                await stream.beat(place(generation))
            continue
        index, event = item
        if isinstance(event, Prefill | Piece | Done) and index not in opened:
            opened.add(index)
            await stream.open()
            if (first := shape.opening(index)) is not None:
                await stream.send(first)
        if isinstance(event, Piece) and (event.text or event.logprobs):
            for chunk in shape.pieces(index, event):
                await stream.send(chunk)
        elif isinstance(event, Prefill) and shows_progress:
            await stream.send(shape.progress(index, event))
        elif isinstance(event, Done):
            dones[index] = event
            for chunk in shape.closing(index, event):
                await stream.send(chunk)
    return dones


class Look:
    """Looks at the client's connection every LOOK_S: aiohttp cannot see its end while reading is paused."""

    def __init__(self, request: web.Request) -> None:
        self._request = request
        self._now = asyncio.get_running_loop().time
        self.began = self._last = self._now()

    def waited(self) -> float:
        """Seconds since the first look."""
        return self._now() - self.began

    def look(self) -> None:
        """Raise ConnectionError when the client has gone."""
        if self._now() - self._last < LOOK_S:
            return
        self._last = self._now()
        transport = self._request.transport
        if transport is None or transport.is_closing():
            raise ConnectionAbortedError("the client has closed the connection")
        sock = transport.get_extra_info("socket")
        if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
            return
        if sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != TCP_ESTABLISHED:
            transport.abort()
            raise ConnectionAbortedError("the client has closed the connection")
