"""What one generation is asked for and what it answers with: plain values. Not here: HTTP, queueing, the wire's JSON.

Everyone between admission and the engine speaks these: admission makes a `GenerateRequest`, the dispatcher's ticket
yields `Queued`, `Prefill`, `Piece` and at the end one `Done`; a failure is an exception from `engine.errors` instead.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from appliance.lane import Lane
from appliance.speech.speech import PLAIN, Speech
from engine.sampling import Sampling

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateRequest:
    """One answer wanted.

    `max_tokens` None means as many as the context holds. `stop` are the strings that end the answer, none of which is
    ever sent. `n_logprobs` 0 sends none; k > 0 sends the chosen token's and the k likeliest alternatives (give 1 and
    ignore `top` for "logprobs without alternatives"). `deadline_ms` counts from submission: a request that cannot start
    by then is refused. `continues` marks a further choice of an answer that has begun. `shown` are ids of special
    tokens that are text all the same; `speech` says how the text is to be read, which is no business of the worker's.
    `wants_embedding`: the vector of the prompt and no text at all. `options`: the token ids of the only answers there
    are; the likeliest is given, and the scores of all. `weighs_end`: an option counts with the turn's end after it;
    `is_relative`: what all options begin with does not count.
    """

    id: str
    prompt_ids: list[int]
    sampling: Sampling
    model: str
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    n_logprobs: int = 0
    skip_special: bool = True
    return_progress: bool = False
    lane: Lane = "interactive"
    deadline_ms: int | None = None
    continues: bool = False
    shown: tuple[int, ...] = ()
    speech: Speech = PLAIN
    wants_embedding: bool = False
    options: tuple[tuple[int, ...], ...] = ()
    weighs_end: bool = False
    is_relative: bool = False


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token, its bytes as they stand in the text, ln(probability), and in `top` its likeliest rivals (whose own `top`
    is empty). A probability of zero is written as -9999.0, since JSON has no infinity."""

    id: int
    text: bytes
    logprob: float
    top: tuple["TokenLogprob", ...] = ()


@dataclass(frozen=True, slots=True)
class Queued:
    """Waiting: `position` 1 is next; `eta_ms` None while no speed has been measured."""

    position: int
    eta_ms: int | None


@dataclass(frozen=True, slots=True)
class Prefill:
    """Reading the prompt: `done` of `total` tokens, `cached` of them not computed, after `ms` of work.

    The first one comes with done = cached as soon as the engine has taken the request.
    """

    done: int
    total: int
    cached: int
    ms: float


@dataclass(frozen=True, slots=True)
class Piece:
    """Whole characters of the answer, with the tokens that were settled by them.

    `ids` may be empty (the rest of a held-back text) and `text` may be empty (a token without text, or half a
    character). Pieces of a slow reader arrive merged.
    """

    text: str
    ids: list[int]
    logprobs: list[TokenLogprob] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Done:
    """The last event. `n_generated` counts the end token too, as llama-server does; `ids` of pieces do not hold it.

    `timings` has llama-server's names (cache_n, prompt_n, prompt_ms, prompt_per_token_ms, prompt_per_second,
    predicted_n, predicted_ms, predicted_per_token_ms, predicted_per_second; with guesses draft_n, draft_n_accepted) and
    queue_ms; prompt_n leaves the cached tokens out, while `n_prompt` counts all. `handoff` is the reason when the text
    is a hand-over to a person and no model wrote it. `embedding` is the prompt's vector where that was asked for:
    float32, little-endian, as base64. `loop`: the answer was ended since it only repeated itself. `scores` are
    ln(probability) of each of the request's options.
    """

    finish_reason: FinishReason
    stop_string: str | None
    n_prompt: int
    n_cached: int
    n_generated: int
    timings: Mapping[str, float]
    seed: int | None
    handoff: str | None = None
    embedding: str | None = None
    loop: Mapping[str, int] | None = None
    scores: tuple[float, ...] | None = None


Event = Queued | Prefill | Piece | Done
