"""From a JSON object to a request model: what is refused, what is ignored, and in which words. Not here: the models.

Three kinds of fields besides a model's own: harmless ones that other servers know and that change no answer (ignored),
features that are not built (refused unless they ask for nothing), and everything else (refused with the nearest name).
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from appliance.api.errors import MissingParameter, UnsupportedParameter
from appliance.names import hint
from appliance.strict_json import json_name
from engine.errors import ColibriError, InvalidParameter

Model = TypeVar("Model", bound=BaseModel)

# Bookkeeping of clients and other servers: none of these could change what is answered.
HARMLESS = frozenset({
    "chat_id", "session_id", "user_id", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "verbosity",
    "keep_alive", "timings_per_token",
})  # fmt: skip


def _nothing(value: Any) -> bool:
    return value in (None, "", False) or value == [] or value == {}


def _no_call(value: Any) -> bool:
    return value in (None, "none", "auto")


def _first_mode(value: Any) -> bool:
    return value is None or (type(value) is int and value == 0)


UNBUILT: dict[str, tuple[Callable[[Any], bool], str]] = {
    "tools": (_nothing, "tools are for chats; send the messages to /v1/chat/completions"),
    "functions": (_nothing, "functions have been replaced by tools"),
    "tool_choice": (_no_call, "tools are for chats; send the messages to /v1/chat/completions"),
    "function_call": (_no_call, "it has been replaced by tool_choice"),
    "grammar": (_nothing, "GBNF is not read; structured_outputs.grammar takes Lark"),
    "mirostat": (_first_mode, "mirostat is not supported by this version"),
    "suffix": (_nothing, "filling in before a suffix is not supported by this version"),
    "audio": (_nothing, "audio is not supported"),
    "prediction": (_nothing, "predicted outputs are not supported"),
    "web_search_options": (_nothing, "this server never goes online"),
}
# They mean something only together with a mode above that is refused.
FOLLOWERS = frozenset({"mirostat_tau", "mirostat_eta", "guided_decoding_backend", "guided_whitespace_pattern"})


def parse_strictly(model: type[Model], body: dict[str, Any]) -> Model:
    """For our own routes, where no field of other servers is expected."""
    _only(model.model_fields, body)
    return _validated(model, body)


def parse(model: type[Model], body: dict[str, Any]) -> Model:
    """The request as `model`; raises the error that names the first wrong field."""
    known = model.model_fields
    body = {name: value for name, value in body.items() if name in known or name not in HARMLESS | FOLLOWERS}
    if body.get("tool_choice") == "none":
        body.pop("tools", None)
    for name, (asks_nothing, words) in UNBUILT.items():
        if name in body and name not in known:
            if not asks_nothing(body[name]):
                raise UnsupportedParameter(f"{name}: {words}; leave it out", param=name)
            del body[name]
    _only(known, body, UNBUILT)
    return _validated(model, body)


def _only(known: Iterable[str], body: Iterable[str], also: Iterable[str] = ()) -> None:
    """Refuse a name that is not known, with the nearest one."""
    for name in body:
        if name not in known:
            near = hint(name[:64], [*known, *also])
            shown = "".join(c for c in name[:64] if c.isprintable())
            raise UnsupportedParameter(f"this route knows no field '{shown}'{near or '; leave it out'}", param=shown)


def _validated(model: type[Model], body: dict[str, Any]) -> Model:
    try:
        return model.model_validate(body)
    except ValidationError as error:
        raise _first(error, model) from None


# pydantic's kinds of fault in words that fit after "expected"; {…} are pydantic's own figures.
WORDS = {
    "int_type": "a whole number", "int_from_float": "a whole number", "float_type": "a number",
    "bool_type": "true or false", "string_type": "a string", "list_type": "an array", "dict_type": "an object",
    "model_type": "an object", "literal_error": "{expected}", "greater_than_equal": "at least {ge}",
    "greater_than": "more than {gt}", "less_than_equal": "at most {le}", "less_than": "less than {lt}",
    "too_short": "at least {min_length} item", "too_long": "at most {max_length} items",
    "string_too_long": "at most {max_length} characters", "string_pattern_mismatch": "a token id as key",
}  # fmt: skip
TYPES = ("int_type", "int_from_float", "float_type", "bool_type", "string_type", "list_type", "dict_type", "model_type")
# Their keys are the client's own words, which no message repeats.
OPAQUE = ("logit_bias", "metadata", "chat_template_kwargs")


def _first(error: ValidationError, model: type[BaseModel]) -> ColibriError:
    """The first fault in one sentence, without the value seen: it may be a prompt."""
    fault = error.errors(include_url=False)[0]
    loc, kind = fault["loc"], fault["type"]
    where = place(loc[:1] if loc[:1] and loc[0] in OPAQUE else loc)
    if kind == "missing":
        return MissingParameter(f"{where} is missing", param=where)
    if kind == "extra_forbidden":
        return UnsupportedParameter(f"this route knows no field '{where}'; leave it out", param=where)
    if not where:
        # A check over several fields: its sentence begins with the one to change.
        named = fault["msg"].split(":")[0].split()[0]
        return InvalidParameter(fault["msg"], param=named if named in model.model_fields else None)
    words = WORDS.get(kind)
    if words is None:
        return InvalidParameter(f"{where}: {fault['msg']}", param=where)
    kind_seen = json_name(fault["input"])
    seen = f", not {kind_seen}" if kind in TYPES and kind_seen != "number" else ""
    expected = words.format(**fault.get("ctx", {}))
    return InvalidParameter(f"{where}: {expected} expected{seen}", param=where)


def place(loc: Iterable[str | int]) -> str:
    """`("messages", 0, "role")` is `messages[0].role`; the tags of union members are left out."""
    out = ""
    for part in loc:
        if isinstance(part, int):
            out += f"[{part}]"
        elif part.isidentifier():
            out += f".{part}" if out else part
    return out[:200]
