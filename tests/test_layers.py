"""Imports point down: a higher rank may use a lower one, never the reverse. Not here: packages from outside."""

from pathlib import Path

import pytest

from scripts.house import MODULES, imported, label, module_name

RANK = {
    "engine.errors": 0,
    "engine.kernels": 1,
    "engine.quants": 2,
    "engine.gguf": 3,
    "engine.weights": 4,
    "engine.cache": 4,
    "engine.tokenizer": 4,
    "engine.models": 5,
    "engine.sampling": 5,
    "engine.lookup": 4,
    "engine.meter": 4,
    "engine.speculate": 5,
    "engine.info": 5,
    "engine.draft": 6,
    "engine.embedding": 6,
    "engine.circles": 5,
    "engine.constrain": 6,
    "engine.prompt": 6,
    "engine.rows": 6,
    "engine.sequence": 6,
    "engine.budget": 6,
    "engine.footprint": 6,
    "engine.spent": 6,
    "engine.census": 7,
    "engine.planner": 7,
    "engine.machinery": 7,
    "engine.score": 7,
    "engine.generate": 8,
    "engine.load": 9,
    "engine": 10,
    "appliance": 11,
    "appliance.api": 12,
    "appliance.cli": 13,
    "tui": 99,
}


def zone(module: str) -> str:
    """The longest key of RANK that is this module or one of its parents."""
    return max((key for key in RANK if f"{module}.".startswith(f"{key}.")), key=len, default="")


def complaints(here: str, names: set[str]) -> list[str]:
    """What is wrong with a module of zone `here` importing `names`."""
    found = []
    for name in sorted(names):
        there = zone(name)
        if not there or there == here:
            continue
        if here == "tui":
            found.append(f"tui imports {name}; use the HTTP client")
        elif RANK[there] >= RANK[here]:
            found.append(f"{here} imports {name}, which does not lie below it")
    return found


@pytest.mark.parametrize("path", MODULES, ids=label)
def test_imports_point_down(path: Path) -> None:
    assert not complaints(zone(module_name(path)), imported(path))


def test_the_rule_itself_catches_what_it_should() -> None:
    assert complaints("engine.kernels", {"engine.models.llama"})
    assert complaints("engine.cache", {"engine.weights.tensor"}), "equal ranks are not below"
    assert complaints("tui", {"appliance.settings"})
    assert not complaints("appliance.api", {"appliance.queue", "engine.planner", "json", "aiohttp.web"})
