"""What differs between two settings, and what that does, in words. Not here: bytes (the planner knows the model)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from appliance.profiles.schema import GROUPS
from appliance.settings import Settings, about
from engine.cache.layout import KV_TYPES

EXACT = {"f32": "exact", "f16": "exact", "bf16": "a little less exact", "q8_0": "a little less exact",
         "q4_0": "less exact"}  # fmt: skip
WHEN = {"engine": "the worker is started anew", "serving": "from the next request on"}
AT_SWAP = "from the next swap on"


@dataclass(frozen=True, slots=True)
class Change:
    """One key that differs; `kind` says what applying it costs: engine or serving."""

    key: str
    old: Any
    new: Any
    kind: str
    effect: str

    def json(self) -> dict[str, Any]:
        return {"key": self.key, "from": self.old, "to": self.new, "kind": self.kind, "effect": self.effect}


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Change]:
    """Of two settings as `model_dump` gives them; the process's own keys are no profile's business and left out."""
    found = []
    for key in Settings.model_fields:
        kind = str(about(key)["kind"])
        before, after = _plain(old.get(key)), _plain(new.get(key))
        if kind != "process" and before != after:
            found.append(Change(key, before, after, kind, f"{_effect(key, before, after)}; {_when(key, kind)}"))
    return found


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _when(key: str, kind: str) -> str:
    return AT_SWAP if key in (*GROUPS["drain"], *GROUPS["warmup"], "fallback") else WHEN[kind]


def _effect(key: str, old: Any, new: Any) -> str:
    if key == "ctx_size" and old and new:
        return f"{new / old:.3g} times the positions, and as much memory for their keys and values"
    if key == "ctx_size":
        return "the planner chooses, the trained length or less" if not new else f"room for {new} tokens in all"
    if key in ("cache_type_k", "cache_type_v"):
        share = KV_TYPES[new][0] / KV_TYPES[old][0]
        what = "keys" if key == "cache_type_k" else "values"
        return f"cached {what} take {share:.0%} of the memory, {EXACT[new]}"
    if key in ("model", "load_mode", "numa"):
        return {"model": "other weights are read", "load_mode": "the weights live elsewhere",
                "numa": "memory is placed on other nodes"}[key]  # fmt: skip
    if key == "alias" or key == "aliases":
        return "clients find the model under other names"
    if isinstance(old, int | float) and isinstance(new, int | float) and not isinstance(new, bool):
        return f"{'more' if new > old else 'less'}: {Settings.model_fields[key].description}"
    return str(Settings.model_fields[key].description)
