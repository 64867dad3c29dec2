"""POST /v1/score: how likely each of a few answers is. Not here: which answers a schema leaves (closed.py), scoring.

    {"context": "Great film. It was", "options": [" good", " bad"]}          text that an option continues
    {"messages": [...], "options": ["positive", "negative"]}                 an option is the assistant's whole turn

`logprob` is ln p of the option's tokens, each behind the text and the tokens before it, and of the turn's end where
`with_end` says so (by default after messages); `probability` is its share of all options. Nothing is generated.
"""

from typing import Annotated, Any, Self

from aiohttp import web
from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from appliance.admission import Prompt, Wish
from appliance.api.body import read_object
from appliance.api.completions import begun, collected, ids_keep_their_model
from appliance.api.fields import parse
from appliance.api.schema import Body, Messages
from appliance.api.services import SERVICES
from appliance.api.sse import dumps
from appliance.closed import LEAST, MOST, entropy, probabilities
from engine.errors import Unavailable


class ScoreRequest(Body):
    """POST /v1/score."""

    context: str | Annotated[list[int], Field(fail_fast=True)] | None = None
    messages: Messages | None = None
    options: Annotated[list[str], Field(min_length=LEAST, max_length=MOST, fail_fast=True)]
    with_end: bool | None = Field(None, description="an option counts with the end of the turn; default: with messages")
    model: str | None = Field(None, description="an id of /v1/models; the only model when left out")
    chat_template_kwargs: dict[str, Any] | None = None
    user: str | None = None

    @model_validator(mode="after")
    def one_text_and_real_options(self) -> Self:
        if (self.context is None) == (self.messages is None):
            raise PydanticCustomError("one_text", "give one of context (a text) and messages (a conversation)")
        if "" in self.options or len(set(self.options)) < len(self.options):
            raise PydanticCustomError("options", "options: an empty one, or one that is there twice; give each once")
        return self


async def score(request: web.Request) -> web.Response:
    """The options with their probabilities, the likeliest as `best`."""
    services = request.app[SERVICES]
    body, raw = await read_object(request, services.body_cap)
    ask = parse(ScoreRequest, body)
    check_model = ids_keep_their_model(services, [] if ask.context is None else [ask.context])

    async def prompts() -> list[Prompt]:
        admission = services.admission
        if ask.messages is not None:
            extra = {"enable_thinking": False, **(ask.chat_template_kwargs or {})}
            made = await admission.chat([m.plain() for m in ask.messages], extra=extra, is_bound=True)
        else:
            assert ask.context is not None
            made = Prompt(await admission.prompt_ids(ask.context))
        return [made._replace(options=await admission.options(ask.options))]

    def wished() -> Wish:
        check_model("context")
        ends = ask.messages is not None if ask.with_end is None else ask.with_end
        return Wish(model=services.model.check(ask.model), max_tokens=1, weighs_end=ends)

    generation = await begun(request, raw, ask, wished, prompts)
    done = (await collected(request, generation))[0]
    if done.scores is None:  # a hand-over to a person
        raise Unavailable("no model is here that could weigh the options now; try again later")
    shares = probabilities(done.scores)
    first, second = sorted(shares, reverse=True)[:2]
    results = [
        {"index": i, "option": option, "probability": share, "logprob": score}
        for i, (option, share, score) in enumerate(zip(ask.options, shares, done.scores, strict=True))
    ]
    best = ask.options[done.scores.index(max(done.scores))]
    whole = {
        "id": generation.name, "object": "score", "created": generation.created, "model": generation.model,
        "best": best, "margin": first - second, "entropy": entropy(shares), "results": results,
        "usage": {
            "prompt_tokens": done.n_prompt, "completion_tokens": 0, "total_tokens": done.n_prompt,
            "prompt_tokens_details": {"cached_tokens": done.n_cached},
        },
        "timings": {name: round(value, 3) for name, value in done.timings.items()},
    }  # fmt: skip
    return web.Response(body=dumps(whole), content_type="application/json")
