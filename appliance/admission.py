"""From messages or a prompt to generations the engine can start: rendered, tokenised, counted, capped, or refused.

Rendering happens in the limited helper process, tokenising in a thread, so the event loop answers others meanwhile.
Not here: HTTP, JSON and field names of an API (appliance/api), the queue, text coming out.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol

from appliance.chat_template import required
from appliance.lane import Lane
from appliance.request import GenerateRequest
from appliance.shield import shielded
from appliance.speech.speech import PLAIN, Speech, thought_of
from appliance.speech.toolset import ToolSet, listen, shown_ids
from engine import constrain
from engine.errors import ContextLengthExceeded, InvalidParameter
from engine.sampling import Sampling
from engine.text import Text

TOKENISERS = 2
"""Threads that tokenise: one long prompt must not hold up a short one, more would take cores from the engine."""
# What a template gets from the request and the file, so that no variable may stand for it.
GIVEN = ("messages", "tools", "add_generation_prompt", "bos_token", "eos_token")


class Renders(Protocol):
    """What admission needs of a chat template renderer."""

    async def render(
        self, template: str, messages: list[dict[str, Any]], *, tools: list[dict[str, Any]] | None = None,
        add_generation_prompt: bool = True, bos_token: str = "", eos_token: str = "",
        extra: dict[str, Any] | None = None,
    ) -> str: ...  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a client asked for besides the prompt. `sampling` holds only the named settings, the rest are defaults."""

    model: str
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    sampling: Mapping[str, Any] = field(default_factory=dict)
    n: int = 1
    n_logprobs: int = 0
    ignore_eos: bool = False
    skip_special: bool = True
    return_progress: bool = False
    lane: Lane = "interactive"
    deadline_ms: int | None = None
    wants_embedding: bool = False
    weighs_end: bool = False
    is_relative: bool = False


def _faults(rules: str) -> str:
    return constrain.check(constrain.lark(rules))


class Prompt(NamedTuple):
    """Token ids, how the answer to them is read, and the only answers there are, if so."""

    ids: list[int]
    speech: Speech = PLAIN
    options: tuple[tuple[int, ...], ...] = ()


class Admission:
    """The text side of one model: `text` is its tokenizer and template, `n_ctx` the context that will be allocated.
    `threads` are those of the admission before, which is asked on until its last request is through."""

    def __init__(self, text: Text, renderer: Renders, *, n_ctx: int, defaults: Sampling, n_predict: int = -1,
                 threads: ThreadPoolExecutor | None = None) -> None:  # fmt: skip
        self.text = text
        self.n_ctx = n_ctx
        self._renderer = renderer
        self._defaults = defaults
        self._n_predict = n_predict
        self._marks: dict[object, tuple[int, ...]] = {}
        self.threads = threads or ThreadPoolExecutor(TOKENISERS, thread_name_prefix="tokenise")

    def close(self) -> None:
        """Let the tokenising threads go when they have done what they were given: a request may still wait for it."""
        self.threads.shutdown(wait=False)

    async def warm(self) -> None:
        """Build the encoder before the first request needs it."""
        await asyncio.get_running_loop().run_in_executor(self.threads, self.text.prepare)

    async def render(
        self, messages: list[dict[str, Any]], *, tools: list[dict[str, Any]] | None = None,
        extra: dict[str, Any] | None = None, add_generation_prompt: bool = True,
    ) -> str:  # fmt: skip
        """The prompt the model's own template makes of `messages`; raises TemplateError with the template's words, and
        InvalidParameter for a variable of a name that is taken."""
        if taken := [name for name in GIVEN if name in (extra or {})]:
            raise InvalidParameter(
                f"chat_template_kwargs names {taken[0]}, which the template gets from the request itself; leave it out",
                param="chat_template_kwargs",
            )
        vocab = self.text.vocab
        return await self._renderer.render(
            required(self.text, bool(tools)), messages, tools=tools or None, bos_token=self.text.name(vocab.bos_id),
            eos_token=self.text.name(vocab.eos_id), extra=extra or {}, add_generation_prompt=add_generation_prompt,
        )  # fmt: skip

    async def encode(self, text: str, *, add_special: bool, parse_special: bool, mark: str = "") -> list[int]:
        """Token ids of a prompt; a text that cannot fit whatever its tokens are is refused without tokenising it."""
        fewest = len((text.replace(mark, "") if mark else text).encode("utf-8")) // self._longest
        if fewest >= self.n_ctx:
            raise self._too_long(f"at least {fewest}", fewest)
        return await self.tokens(text, add_special=add_special, parse_special=parse_special, mark=mark)

    async def tokens(self, text: str, *, add_special: bool, parse_special: bool, mark: str = "") -> list[int]:
        """Token ids of a text of any length, in a thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.threads, self.text.encode, text, add_special, parse_special, mark)

    async def chat(
        self, messages: list[dict[str, Any]], *, extra: dict[str, Any] | None = None, toolset: ToolSet | None = None,
        splits: bool = True, is_bound: bool = False,
    ) -> "Prompt":  # fmt: skip
        """A conversation, with exactly one begin token when the template or the file asks for one. An answer that
        `is_bound` by a grammar begins at once: a thought that the template opens is closed, nothing is told apart."""
        tools = [dict(tool) for tool in toolset.tools] if toolset else None
        loop = asyncio.get_running_loop()
        messages, mark = await loop.run_in_executor(self.threads, shielded, self.text, messages)
        rendered = await self.render(messages, tools=tools, extra=extra)
        template = required(self.text, bool(toolset))
        if is_bound:
            opened, closed = thought_of(template)
            if rendered.rstrip().endswith(opened):
                rendered = f"{rendered.rstrip()}\n{closed}\n\n"
        splits = splits and not is_bound
        # In a thread: the grammar of a call that must come is made of schemas, which can be hostile.
        text, speech = await loop.run_in_executor(self.threads, listen, template, rendered, toolset, splits, _faults)
        return Prompt(await self.encode(text, add_special=True, parse_special=True, mark=mark), speech)

    async def prompt_ids(self, prompt: str | Sequence[int]) -> list[int]:
        """Ids of a raw prompt; given ids are checked against the vocabulary and taken as they are.

        The begin token comes as the file says, and not twice when the prompt begins with its text.
        """
        if isinstance(prompt, str):
            return await self.encode(prompt, add_special=True, parse_special=True)
        n_vocab = self.text.vocab.n_vocab
        for token in prompt:
            if not 0 <= token < n_vocab:
                raise InvalidParameter(f"token id {token} is outside the vocabulary of {n_vocab}", param="prompt")
        return list(prompt)

    async def options(self, texts: Sequence[str]) -> tuple[tuple[int, ...], ...]:
        """Token ids of the answers that are possible, each as it would begin an answer; InvalidParameter for one that
        the model has no tokens for."""
        return await asyncio.get_running_loop().run_in_executor(self.threads, self._options, texts)

    def unwritable(self, letters: Iterable[str]) -> list[str]:
        """Those of them that the model has no tokens for, not even by their bytes."""
        return sorted(c for c in letters if self.text.decode(self.text.encode(c, False, False), special=True) != c)

    def _options(self, texts: Sequence[str]) -> tuple[tuple[int, ...], ...]:
        found = []
        for text in texts:
            ids = self.text.encode(text, False, False)
            if self.text.decode(ids, special=True) != text:
                short = text if len(text) <= 40 else text[:40] + "…"
                raise InvalidParameter(f"the model's vocabulary cannot write {short!r}; leave it out", param="options")
            found.append(tuple(ids))
        return tuple(found)

    def requests(
        self, ids: list[int], wish: Wish, name: str, speech: Speech = PLAIN, options: tuple[tuple[int, ...], ...] = ()
    ) -> list[GenerateRequest]:
        """`wish.n` generations for one prompt, named `name-0`, `name-1` …; with a seed each gets its own, one higher.

        Raises ContextLengthExceeded when the prompt leaves no room for one token, InvalidParameter for a sampler's
        value; a limit above the room is capped to it.
        """
        if not ids:
            raise InvalidParameter("the prompt has no token at all; send some text", param="prompt")
        room = self.n_ctx - len(ids) + wish.wants_embedding  # a vector takes no place behind the text
        if room < max((len(option) for option in options), default=1):
            raise self._too_long(str(len(ids)), len(ids))
        limits = [n for n in (wish.max_tokens, self._n_predict if self._n_predict >= 0 else None) if n is not None]
        sampling = self._sampling(wish)
        if speech.grammar:
            sampling = replace(sampling, grammar=constrain.lark(speech.grammar))
        first = GenerateRequest(
            id=f"{name}-0", prompt_ids=ids, sampling=sampling, model=wish.model, max_tokens=min([room, *limits]),
            stop=(*wish.stop, *speech.stop), ignore_eos=wish.ignore_eos, n_logprobs=wish.n_logprobs,
            skip_special=wish.skip_special, return_progress=wish.return_progress, lane=wish.lane,
            deadline_ms=wish.deadline_ms, shown=self._shown(speech), speech=speech,
            wants_embedding=wish.wants_embedding,
            options=options, weighs_end=wish.weighs_end, is_relative=wish.is_relative,
        )  # fmt: skip
        more = [
            replace(first, id=f"{name}-{i}", sampling=replace(sampling, seed=(sampling.seed + i) % (1 << 64)))
            if sampling.seed is not None
            else replace(first, id=f"{name}-{i}")
            for i in range(1, wish.n)
        ]
        return [first, *more]

    def _sampling(self, wish: Wish) -> Sampling:
        sampling = replace(self._defaults, **wish.sampling)
        sampling.validate(self.text.vocab.n_vocab)
        return sampling

    def _shown(self, speech: Speech) -> tuple[int, ...]:
        key = speech.thought, speech.form
        if key not in self._marks:  # a walk through the vocabulary, 5 ms for 150k tokens
            self._marks[key] = shown_ids(self.text.vocab, speech)
        return self._marks[key]

    @cached_property
    def _longest(self) -> int:
        vocab = self.text.vocab
        return max(1, max(len(vocab.bytes_of(token)) for token in range(vocab.n_vocab)))

    def _too_long(self, seen: str, n_prompt: int) -> ContextLengthExceeded:
        return ContextLengthExceeded(
            f"the prompt has {seen} tokens, and the context of {self.n_ctx} must hold it and at least one token of the "
            "answer; send a shorter prompt or start the server with a larger --ctx-size",
            n_prompt_tokens=n_prompt, n_ctx=self.n_ctx,
        )  # fmt: skip
