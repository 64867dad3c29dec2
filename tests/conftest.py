"""What every test gets without asking: a machine without anyone's settings. Not here: inputs, which tests make."""

import os
from pathlib import Path

import pytest

HOMES = {"HOME": "home", "XDG_CACHE_HOME": "cache", "XDG_CONFIG_HOME": "config", "XDG_DATA_HOME": "data"}
# The instruction set under test is the runner's choice; kernels compiled for one test serve the next (the folder is
# named after their sources, so it cannot lie).
KEPT = {"COLIBRI_ISA", "COLIBRI_KERNEL_CACHE"}
USERS_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
KERNEL_CACHE = os.environ.get("COLIBRI_KERNEL_CACHE") or str(USERS_CACHE / "colibri" / "kernels")


@pytest.fixture(autouse=True)
def _nobodys_machine(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Hide the profiles, keys and COLIBRI_* knobs of whoever runs the tests; keep only the kernel cache."""
    for name in [n for n in os.environ if n.startswith("COLIBRI_") and n not in KEPT]:
        monkeypatch.delenv(name)
    nobody = tmp_path_factory.getbasetemp() / "nobody"
    for name, folder in HOMES.items():
        monkeypatch.setenv(name, str(nobody / folder))
    monkeypatch.setenv("COLIBRI_KERNEL_CACHE", KERNEL_CACHE)
