"""From a conversation's prompt and its tools to how the answer is read. Not here: rendering, reading."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from appliance.speech import harmony
from appliance.speech.forms import Form
from appliance.speech.grammar import Schemas, anything, schemas_of
from appliance.speech.harmony import Harmony
from appliance.speech.reader import Reader
from appliance.speech.speech import CALL_MARKERS, PLAIN, Speech, form_of, is_harmony, thought_of, types_of
from engine.errors import RequestError
from engine.tokenizer.vocab import Vocab


@dataclass(frozen=True, slots=True)
class ToolSet:
    """The tools of a request. `must` call one; if `name` is given, that one. `most` calls in one answer."""

    tools: Sequence[Mapping[str, Any]]
    must: bool = False
    name: str | None = None
    most: int | None = None


Faults = Callable[[str], str]
"""What is wrong with a grammar, "" if it can be kept to."""


def listen(
    template: str, prompt: str, toolset: ToolSet | None, splits: bool = True, faults: Faults | None = None
) -> tuple[str, Speech]:
    """The prompt that the model gets and how its answer is read. `splits` tells reasoning from the answer.

    A call that must come is begun in the prompt: the model can only go on with it, and with `faults` to judge it the
    rest gets a grammar; a schema that is too hard for one leaves it to the model what is in the object. RequestError
    where the template's calls are in a form that nobody here reads.
    """
    in_channels, form = is_harmony(template), form_of(template) if toolset else None
    if toolset and form is None and not in_channels:
        raise RequestError(
            "this model's chat template has its tools called in a form that is not read here; leave tools out, or "
            "start the server with another --chat-template (hermes for ChatML models)",
            param="tools",
        )
    if not toolset and not splits and in_channels:
        return prompt, PLAIN
    thought = thought_of(template)
    is_thinking = not in_channels and prompt.rstrip().endswith(thought[0])
    begun, grammar, tools = "", "", types_of(toolset.tools) if toolset else {}
    if toolset and toolset.must:
        if is_thinking:
            prompt, is_thinking = f"{prompt.rstrip()}\n{thought[1]}\n\n", False
        begun = harmony.begin(toolset.name) if form is None else form.begin(toolset.name, template)
        tools = {toolset.name: tools[toolset.name]} if toolset.name else tools
        schemas = {name: schema for name, schema in schemas_of(toolset.tools).items() if name in tools}
        grammar = _rest(form, toolset.name, template, schemas, faults) if faults is not None else ""
    speech = Speech(
        thought=thought if splits and not in_channels else None, is_thinking=is_thinking, form=form, tools=tools,
        most_calls=toolset.most if toolset else None, begun=begun, is_harmony=in_channels,
        must=toolset is not None and toolset.must, grammar=grammar,
        stop=(form.closer,) if form is not None and form.closer and toolset and toolset.most == 1 else (),
    )  # fmt: skip
    return prompt + begun, speech


def _rest(form: type[Form] | None, name: str | None, template: str, schemas: Schemas, faults: Faults) -> str:
    for kept in (schemas, anything(schemas)):
        grammar = harmony.rest(name, kept) if form is None else form.rest(name, template, kept)
        if grammar and not faults(grammar):
            return grammar
    return ""


def reader_of(speech: Speech) -> Reader | Harmony:
    """What reads an answer of this kind."""
    return Harmony(speech) if speech.is_harmony else Reader(speech)


def shown_ids(vocab: Vocab, speech: Speech) -> tuple[int, ...]:
    """Tokens that have to reach the reader although the file calls them control tokens, which are not shown."""
    marks = frozenset(speech.thought or ()) | (CALL_MARKERS if speech.form is not None else frozenset())
    return tuple(i for i, token in enumerate(vocab.tokens) if token in marks and vocab.is_special(i)) if marks else ()
