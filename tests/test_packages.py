"""Which package from outside may be imported where, and that the distribution asks for exactly those."""

import re
import sys
import tomllib
from pathlib import Path

import pytest

from scripts.house import MODULES, PACKAGES, ROOT, imported, label, module_name

# Each place is a package or a module; a package covers all below it. The reason is the cost of a wrong import: numba
# takes half a second and 100 MB, a second home for YAML or templates is a second set of rules about them.
PLACES = {
    "numba": ("engine.kernels", "engine.quants"),
    "llvmlite": ("engine.kernels", "engine.quants"),
    "numpy": ("engine",),
    "tokenizers": ("engine.tokenizer",),
    "llguidance": ("engine.constrain",),
    "aiohttp": ("appliance.api", "appliance.upstream", "tui.client"),
    "pydantic": ("appliance", "tui.config"),
    "pydantic_core": ("appliance",),
    "yaml": ("appliance.profiles", "tui.config"),
    "psutil": ("appliance.machine.host", "tui"),
    "jinja2": ("appliance.conversation",),
    "prometheus_client": ("appliance.metrics",),
    "textual": ("tui",),
    "rich": ("tui",),
    "docker": ("tui.containers",),
    "tree_sitter": ("tui",),
    "tree_sitter_yaml": ("tui",),
}
COMES_WITH = {"llvmlite": "numba", "pydantic_core": "pydantic", "rich": "textual"}
DISTRIBUTION = {"yaml": "pyyaml", "prometheus_client": "prometheus-client", "tree_sitter": "tree-sitter",
                "tree_sitter_yaml": "tree-sitter-yaml"}  # fmt: skip
# What stands on the undocumented part of a package is pinned to one version.
PINNED = {"textual"}


def outside(names: set[str]) -> set[str]:
    return {name.split(".")[0] for name in names} - set(sys.stdlib_module_names) - set(PACKAGES) - {"__future__"}


@pytest.mark.parametrize("path", MODULES, ids=label)
def test_outside_packages_stay_in_their_places(path: Path) -> None:
    here = module_name(path)
    for package in sorted(outside(imported(path))):
        places = PLACES.get(package, ())
        allowed = any(f"{here}.".startswith(f"{place}.") or here.startswith(f"{place}_") for place in places)
        assert allowed, f"{here} imports {package}, which belongs in {', '.join(places) or 'no file of this project'}"


def test_the_distribution_asks_for_what_the_table_knows() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = {re.split(r"[<>=!\[;]", line)[0] for line in project["dependencies"]}
    assert asked == {DISTRIBUTION.get(package, package) for package in PLACES if package not in COMES_WITH}


def test_every_dependency_has_a_range_with_both_ends() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    odd = [d for d in project["dependencies"] if not re.search(r">=[\d.]+,<[\d.]+$", d)]
    assert [re.sub(r"==[\d.]+$", "", d) for d in odd] == sorted(PINNED)
