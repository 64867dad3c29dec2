"""The keys of a profile: their groups, what each takes, its default and its reason. Not here: a file's words.

Which keys there are follows from the settings: every knob that is not the process's own is a key, so a key that nothing
reads cannot exist. The groups are for the reader's eye; inside them a key keeps the flag's own name.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model
from pydantic.fields import FieldInfo

from appliance.settings import Settings, about, default_of

NAME = r"^[a-z0-9][a-z0-9._-]{0,62}$"
SUMMARY_LENGTH = 200
GROUPS: dict[str, tuple[str, ...]] = {
    "sampling": ("n_predict", "temp", "top_k", "top_p", "min_p", "typical_p", "repeat_penalty", "repeat_last_n",
                 "presence_penalty", "frequency_penalty", "seed"),
    "queue": ("max_queue", "max_queue_batch", "queue_timeout", "timeout", "handover"),
    "drain": ("drain_timeout", "drain_policy"),
    "warmup": ("start_timeout", "warm_timeout", "check_timeout", "stop_timeout", "warmup_prompt", "warmup_tokens"),
}  # fmt: skip
TITLES = {
    "sampling": "how tokens are chosen where a request says nothing",
    "queue": "who may wait, how long, and what is said when it takes too long",
    "drain": "what becomes of answers under way when this profile leaves",
    "warmup": "how long each stage of a swap to this profile may take, and what it must answer",
}
TOP = tuple(key for key in Settings.model_fields
            if about(key)["kind"] != "process" and not any(key in keys for keys in GROUPS.values()))  # fmt: skip
KEYS = (*TOP, *(key for keys in GROUPS.values() for key in keys))
# Planned, so that somebody will try them; until something reads them they are refused with a word about today.
PLANNED = {
    "ttl": "a model stays loaded until the next swap",
    "schedule": "a profile is changed by hand, by 'colibri profile apply' or by a cron job that calls it, once "
    "'colibri profile rehearse' has shown what its longest input takes",
}
# Texts for people and models; the others are names, and go into headers and log lines.
LINES = ("handover", "warmup_prompt", "chat_template")
# What other programs and older papers call these keys; difflib would not find them.
ALSO = {
    "context": "ctx_size", "ctx": "ctx_size", "n_ctx": "ctx_size", "num_ctx": "ctx_size", "context_length": "ctx_size",
    "slots": "parallel", "n_parallel": "parallel", "num_thread": "threads", "n_threads": "threads",
    "batch": "batch_size", "ubatch": "ubatch_size", "kv": "cache_type_k", "kv_type": "cache_type_k",
    "temperature": "sampling.temp", "max_tokens": "sampling.n_predict", "num_predict": "sampling.n_predict",
    "description": "summary", "concurrencyLimit": "queue.max_queue",
    "prompt": "warmup.warmup_prompt", "expect_tokens": "warmup.warmup_tokens",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Takes:
    """What a key takes: `base` is one of switch, whole, number, word (of `choices`), text, texts."""

    base: str
    choices: tuple[str, ...] = ()
    is_optional: bool = False
    is_auto: bool = False
    has_lines: bool = False
    words: str = ""


def path_of(key: str) -> str:
    """Where a key stands in the file: `ctx_size`, `sampling.temp`."""
    return next((f"{group}.{key}" for group, keys in GROUPS.items() if key in keys), key)


@cache
def takes(key: str) -> Takes:
    """Of a setting, or of `name` and `summary`, which are the profile's own."""
    if key in ("name", "summary"):
        words = "small letters, digits, '.', '_' and '-'" if key == "name" else f"at most {SUMMARY_LENGTH} characters"
        return Takes("text", words=words)
    field = Settings.model_fields[key]
    kinds = [kind for kind in get_args(field.annotation) if kind is not type(None)] or [field.annotation]
    is_optional = type(None) in get_args(field.annotation)
    is_auto = is_optional and int in kinds and any(isinstance(m, BeforeValidator) for m in field.metadata)
    if get_origin(field.annotation) is Literal:
        choices = tuple(map(str, get_args(field.annotation)))
        return Takes("word", choices, words=f"{', '.join(choices[:-1])} or {choices[-1]}")
    if get_origin(field.annotation) is tuple:
        return Takes("texts", words="a list of names")
    base = {bool: "switch", int: "whole", float: "number", str: "text"}[kinds[0]]
    words = {"switch": "true or false", "whole": "a whole number", "number": "a number", "text": "text"}[base]
    words = f"{'auto or ' if is_auto else ''}{words}{_limits(field)}"
    return Takes(base, is_optional=is_optional, is_auto=is_auto, has_lines=key in LINES, words=words)


def _limits(field: FieldInfo) -> str:
    least = most = ""
    for rule in field.metadata:
        for name, words in (("ge", "from {}"), ("gt", "over {}"), ("min_length", "of {}")):
            if (limit := getattr(rule, name, None)) is not None:
                least = words.format(plain_number(limit))
        for name, words in (("le", "to {}"), ("lt", "below {}"), ("max_length", "to {} characters")):
            if (limit := getattr(rule, name, None)) is not None:
                most = words.format(plain_number(limit))
    if least == f"from {most.removeprefix('to ')}":
        return f", {most.removeprefix('to ')} and no other"
    if least.startswith("over") and most:
        least += " and"
        most = most.replace("to ", "at most ")
    return "".join(f" {words}" for words in (least, most) if words)


def plain_number(value: object) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def default_words(key: str) -> str:
    """The default as it would be written in a profile; `unset` where leaving the key out is the only way to say it."""
    value = default_of(Settings.model_fields[key])
    if value is None or value == ():
        return "auto" if takes(key).is_auto else "unset"
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) and takes(key).base == "text" and " " in value else str(value)


def fields(values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What an editor shows beside each key: help, kind, default, why, what it takes, and the file's value or None."""
    return {
        path_of(key): {
            "help": Settings.model_fields[key].description,
            "kind": about(key)["kind"],
            "default": default_words(key),
            "why": about(key)["why"],
            "takes": takes(key).words,
            "value": list(values[key]) if isinstance(values.get(key), tuple) else values.get(key),
        }
        for key in KEYS
    }


def _group(title: str, keys: tuple[str, ...], more: dict[str, Any]) -> type[BaseModel]:
    """A strict model of those settings, each optional: what is absent is left to the layer below."""
    found = {key: (Settings.model_fields[key].annotation, Settings.model_fields[key]) for key in keys}
    config = ConfigDict(extra="forbid", strict=True, protected_namespaces=())
    model: type[BaseModel] = create_model(title, __config__=config, **{**found, **more})
    return model


_GROUP_MODELS = {name: _group(name.title(), keys, {}) for name, keys in GROUPS.items()}
ProfileModel = _group("ProfileModel", TOP, {
    "name": (str, Field(pattern=NAME, description="what the profile is called; equals the file's name")),
    "summary": (str, Field("", max_length=SUMMARY_LENGTH, description="one line that says what it is for")),
    **{name: (model, Field(default_factory=model, description=TITLES[name])) for name, model in _GROUP_MODELS.items()},
})  # fmt: skip
