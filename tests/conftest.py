"""What every test gets without asking: a machine without anyone's settings. Not here: inputs, which tests make."""

import os
from pathlib import Path

import pytest

# numpy's BLAS spins while its threads wait for each other: beside other tests two of them take 5.6 CPU seconds for what
# one does in 0.3 (a forward of the reference over 36 ids). It is read when numpy is first imported, which is later.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

HOMES = {"HOME": "home", "XDG_CACHE_HOME": "cache", "XDG_CONFIG_HOME": "config", "XDG_DATA_HOME": "data"}
# The instruction set under test is the runner's choice; kernels compiled for one test serve the next (the folder is
# named after their sources, so it cannot lie).
KEPT = {"COLIBRI_ISA", "COLIBRI_KERNEL_CACHE"}
USERS_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
# What takes longest begins first, or one process works alone at the end: pytest-xdist itself begins with the files of
# most tests, and those of few tests are the long ones here (a service that restarts, a machine that is cut off).
FIRST = (
    "engine/test_accuracy.py", "appliance/api/test_swaps.py", "tui/test_swap.py", "appliance/api/test_restart.py",
    "tui/test_editor.py", "tui/test_profiles.py", "engine/kernels/test_warm.py", "terminal/test_hangup.py",
    "engine/quants/test_kernels.py", "terminal/test_terms.py", "terminal/test_ssh.py", "tui/test_review.py",
    "engine/tokenizer/test_real_vocabularies.py",
    "engine/test_identity.py", "engine/tokenizer/test_against_llama_cpp.py", "appliance/api/test_serve.py",
    "tui/test_dash.py", "tui/test_dialogs.py", "engine/kernels/test_attention.py", "tui/test_real_swap.py",
    "appliance/test_supervisor.py", "engine/test_borders.py", "appliance/cli/test_limits.py", "tui/test_chrome.py",
    "appliance/test_real_worker.py", "appliance/machine/test_tune_killed.py", "engine/tokenizer/test_spm_files.py",
    "appliance/api/test_shortage.py", "engine/kernels/test_jit.py", "appliance/api/test_swap_ends.py",
    "terminal/test_sizes.py",
)  # fmt: skip
KERNEL_CACHE = os.environ.get("COLIBRI_KERNEL_CACHE") or str(USERS_CACHE / "colibri" / "kernels")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files of FIRST come first, in its order; tests of one file stay together."""
    here = Path(__file__).parent
    rank = {here / name: i for i, name in enumerate(FIRST)}
    gone = [name for name in FIRST if not (here / name).exists()]
    if gone:
        raise pytest.UsageError(f"tests/conftest.py: FIRST names files that are gone: {', '.join(gone)}")
    items.sort(key=lambda item: rank.get(item.path, len(FIRST)))


@pytest.fixture(autouse=True)
def _nobodys_machine(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Hide the profiles, keys and COLIBRI_* knobs of whoever runs the tests; keep only the kernel cache."""
    for name in [n for n in os.environ if n.startswith("COLIBRI_") and n not in KEPT]:
        monkeypatch.delenv(name)
    nobody = tmp_path_factory.getbasetemp() / "nobody"
    for name, folder in HOMES.items():
        monkeypatch.setenv(name, str(nobody / folder))
    monkeypatch.setenv("COLIBRI_KERNEL_CACHE", KERNEL_CACHE)
