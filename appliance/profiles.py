"""Profiles: named sets of knobs in YAML, read strictly. Not here: the knobs (settings.py), swapping between profiles.

A profile is a flat mapping of long flag names with underscores, with two groups for reading ease: `sampling:` and
`queue:`. YAML's traps are closed: a key twice is an error, `no` is the text "no" and not False, `010` is not 8,
`1:30` is not 90, anchors and tags are refused. Errors name the file and the line.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from appliance.names import hint
from appliance.settings import Settings, about, plain
from engine.errors import UsageError

PACKAGED = Path(__file__).resolve().parent.parent / "profiles"
MOST_BYTES = 64 * 1024
NAME = r"^[a-z0-9][a-z0-9._-]{0,62}$"
QUEUE = ("max_queue", "queue_timeout", "timeout")
SAMPLING = ("n_predict", "temp", "top_k", "top_p", "min_p", "typical_p", "repeat_penalty", "repeat_last_n",
            "presence_penalty", "frequency_penalty", "seed")  # fmt: skip
GROUPS = {"sampling": SAMPLING, "queue": QUEUE}
TOP = tuple(k for k in Settings.model_fields if about(k)["kind"] != "process" and k not in (*QUEUE, *SAMPLING))
Lines = dict[tuple[str, ...], int]


def _group(title: str, keys: tuple[str, ...], more: dict[str, Any]) -> type[BaseModel]:
    """A strict model of those settings, each optional: what is absent is left to the layer below."""
    fields = {key: (Settings.model_fields[key].annotation, Settings.model_fields[key]) for key in keys}
    config = ConfigDict(extra="forbid", strict=True, protected_namespaces=())
    model: type[BaseModel] = create_model(title, __config__=config, **{**fields, **more})
    return model


Queue = _group("Queue", QUEUE, {})
Sampling = _group("Sampling", SAMPLING, {})
ProfileModel = _group(
    "ProfileModel",
    TOP,
    {
        "name": (str, Field(pattern=NAME, description="what the profile is called; equals the file's name")),
        "summary": (str, Field("", max_length=200, description="one line that says what it is for")),
        "sampling": (Sampling, Field(default_factory=Sampling, description="how tokens are chosen")),
        "queue": (Queue, Field(default_factory=Queue, description="who may wait, and how long")),
    },
)


def profile_folders(data_dir: Path) -> list[Path]:
    """Where profiles lie, the stronger folder first: edits in the data folder overlay the packaged ones by name."""
    return [data_dir / "profiles", PACKAGED]


def profile_names(data_dir: Path) -> list[str]:
    """Every name that `load_profile` takes."""
    return sorted({p.stem for folder in profile_folders(data_dir) if folder.is_dir() for p in folder.glob("*.yaml")})


def load_profile(name: str, data_dir: Path) -> dict[str, Any]:
    """The values a profile sets, flat, with its `name`, as `settings.resolve` takes them; UsageError if it is wrong."""
    if not re.match(NAME, name):
        raise UsageError(f"'{name}' is no profile name; small letters, digits, '.', '_' and '-' are")
    for folder in profile_folders(data_dir):
        path = folder / f"{name}.yaml"
        if path.is_file():
            return read_profile(path)
    known = profile_names(data_dir)
    raise UsageError(f"there is no profile '{name}' among {', '.join(known)}{hint(name, known)}")


def read_profile(path: Path) -> dict[str, Any]:
    """One file's values, checked; raises UsageError with file, line and the nearest name for an unknown key."""
    try:
        with path.open("rb") as file:
            text = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"the profile {path} cannot be read: {error.strerror}") from None
    if len(text) > MOST_BYTES:
        raise UsageError(f"the profile {path} is over {MOST_BYTES} bytes; a profile is a page, not a book")
    values, lines = _parse(text, path)
    try:
        profile = ProfileModel.model_validate(values)
    except ValidationError as error:
        raise UsageError(_sentence(path, error, lines)) from None
    flat = profile.model_dump(exclude_unset=True)
    if flat["name"] != path.stem:
        line = lines["name",]
        raise UsageError(f"{path} line {line}: the name '{flat['name']}' differs from the file's, {path.stem}")
    flat.pop("summary", None)
    return {**flat.pop("sampling", {}), **flat.pop("queue", {}), **flat}


def _sentence(path: Path, error: ValidationError, lines: Lines) -> str:
    first = error.errors(include_url=False, include_context=False)[0]
    loc = tuple(str(part) for part in first["loc"])
    key = loc[-1]
    line = lines.get(loc) or lines.get(loc[:-1]) or 1
    if first["type"] == "missing":
        return f"{path} line {line}: the key '{key}' is missing"
    if first["type"] == "extra_forbidden":
        group = GROUPS.get(loc[0] if len(loc) > 1 else "", tuple(ProfileModel.model_fields))
        if key in Settings.model_fields and about(key)["kind"] == "process":
            return f"{path} line {line}: '{key}' belongs to the process; set it by flag or environment"
        home = next((name for name, keys in GROUPS.items() if key in keys and keys != group), "")
        tail = f"; it goes under '{home}:'" if home else hint(key, group)
        return f"{path} line {line}: nothing reads the key '{'.'.join(loc)}'{tail}"
    if key in GROUPS:
        return f"{path} line {line}: '{key}:' holds no keys; write some below it, or leave it out"
    return f"{path} line {line}: {'.'.join(loc)} is {first['input']!r}: {plain(first['msg'])}"


class _Strict(yaml.SafeLoader):
    """Scalars are plain: true/false, decimal numbers, null; everything else is text."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            problem = "anchors and aliases are not used in profiles"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)
        return super().compose_node(parent, index)


_Strict.yaml_implicit_resolvers = {}
_Strict.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(true|false)$"), list("tf"))
_Strict.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"^[-+]?(0|[1-9][0-9]{0,18})$"), list("-+0123456789"))
_Strict.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?(0|[1-9][0-9]{0,18})\.[0-9]{1,18}$"), list("-+0123456789"))
_Strict.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"^(null|~|)$"), ["n", "~", ""])
_SCALARS: dict[str, Callable[[str], Any]] = {
    "bool": lambda text: text == "true",
    "int": int,
    "float": float,
    "null": lambda text: None,
    "str": str,
}


def _parse(text: bytes, path: Path) -> tuple[dict[str, Any], Lines]:
    lines: Lines = {}
    try:
        node = _Strict(text).get_single_node()
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise UsageError(f"{path}{where}: not the YAML of a profile: {problem}") from None
    except RecursionError:
        raise UsageError(f"{path}: not the YAML of a profile: nested too deeply") from None
    if not isinstance(node, yaml.MappingNode):
        raise UsageError(f"{path} line 1: a profile is a list of 'key: value' lines, this is something else")
    return _mapping(node, (), path, lines), lines


def _mapping(node: yaml.MappingNode, at: tuple[str, ...], path: Path, lines: Lines) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            raise UsageError(f"{path} line {line}: a key must be a word")
        here = (*at, str(key_node.value))
        if here in lines:
            word = ".".join(here)
            raise UsageError(f"{path} line {line}: the key '{word}' is set twice, first on line {lines[here]}")
        lines[here] = line
        values[here[-1]] = _value(value_node, here, path, lines)
    return values


def _value(node: yaml.Node, at: tuple[str, ...], path: Path, lines: Lines) -> Any:
    if isinstance(node, yaml.MappingNode):
        if len(at) >= 4:
            raise UsageError(f"{path} line {node.start_mark.line + 1}: '{'.'.join(at)}' is nested too deeply")
        return _mapping(node, at, path, lines)
    kind = str(node.tag).removeprefix("tag:yaml.org,2002:")
    if isinstance(node, yaml.ScalarNode) and kind in _SCALARS:
        return _SCALARS[kind](node.value)
    if isinstance(node, yaml.SequenceNode) and kind == "seq":
        return [_value(child, (*at, str(i)), path, lines) for i, child in enumerate(node.value)]
    raise UsageError(f"{path} line {node.start_mark.line + 1}: the tag {node.tag} is not used in profiles")
