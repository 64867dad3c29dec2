"""POST /v1/messages and /v1/messages/count_tokens: Anthropic's door to the same models. Not here: fields, shapes.

Its errors and its streams have Anthropic's shape; everything between is that of /v1/chat/completions.
"""

from typing import Any, TypeVar

from aiohttp import web

from appliance.admission import Prompt
from appliance.api.body import read_object
from appliance.api.completions import begun, grammar_for, respond, stream_to, wish_for
from appliance.api.fields import parse
from appliance.api.messages_schema import CountTokensRequest, MessagesRequest
from appliance.api.messages_shape import MessageShape
from appliance.api.messages_stream import MessageStream
from appliance.api.schema import ChatRequest
from appliance.api.services import REQUEST_ID, SERVICES, Services
from appliance.api.sse import dumps
from appliance.api.tools import chosen
from engine.errors import InvalidParameter

UNREAD = ("betas", "diagnostics", "inference_geo", "speed", "user_profile_id", "workspace_id")
"""Bookkeeping between clients and their vendor."""
Given = TypeVar("Given", bound=CountTokensRequest)


async def create(request: web.Request) -> web.StreamResponse:
    """The next turn, in Anthropic's shape."""
    services = request.app[SERVICES]
    body, raw = await read_object(request, services.body_cap)
    given = _parsed(MessagesRequest, body)
    ask = parse(ChatRequest, given.as_chat())
    grammar = await grammar_for(services, ask)

    async def prompts() -> list[Prompt]:
        return [await _prompt(services, given, ask, bool(grammar))]

    generation = await begun(request, raw, ask, lambda: wish_for(services, ask, None, grammar), prompts)
    shape = MessageShape(answer=generation, generation=generation, stops=ask.stops(), notes=given.notes())
    if given.stream:
        return await stream_to(MessageStream(request, request[REQUEST_ID]), request, generation, shape)
    return await respond(request, generation, shape)


async def count_tokens(request: web.Request) -> web.Response:
    """How many tokens the prompt of these messages has."""
    services = request.app[SERVICES]
    body, _ = await read_object(request, services.body_cap)
    given = _parsed(CountTokensRequest, body)
    ask = parse(ChatRequest, given.as_chat())
    services.model.check(ask.model)
    prompt = await _prompt(services, given, ask, is_bound=bool(ask.json_schema))
    return web.Response(body=dumps({"input_tokens": len(prompt.ids)}), content_type="application/json")


def _parsed(model: type[Given], body: dict[str, Any]) -> Given:
    given = parse(model, {name: value for name, value in body.items() if name not in UNREAD})
    if isinstance(body.get("system"), list) and any(block.type != "text" for block in given.system or ()):  # type: ignore[union-attr]
        raise InvalidParameter("system: blocks of type text expected", param="system")
    return given


async def _prompt(services: Services, given: CountTokensRequest, ask: ChatRequest, is_bound: bool) -> Prompt:
    toolset = chosen(given.openai_tools(), given.choice(), given.is_parallel())
    if is_bound and toolset:
        raise InvalidParameter("an answer that must fit a schema cannot call tools; leave tools out", param="tools")
    extra = ask.variables()
    if is_bound:
        extra["enable_thinking"] = False
    messages = [message.plain() for message in ask.messages]
    return await services.admission.chat(messages, extra=extra, toolset=toolset, is_bound=is_bound)
