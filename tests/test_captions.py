"""Every file says what it is for and what it leaves to others; the README's tree is made of those words."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.house import EVERYTHING, MODULES, ROOT, caption, label

WITH_CODE = [p for p in EVERYTHING if p.read_text().strip()]
SCRIPTS = [ROOT / "up", ROOT / ".ci" / "run", ROOT / "scripts" / "test"]


@pytest.mark.parametrize("path", WITH_CODE + SCRIPTS, ids=label)
def test_a_caption_says_what_the_file_is_for(path: Path) -> None:
    words = caption(path)
    assert 8 <= len(words) <= 120, f"the first sentence of {label(path)} is its caption in the README: {words!r}"


@pytest.mark.parametrize("path", MODULES, ids=label)
def test_a_module_says_what_is_not_here(path: Path) -> None:
    words = " ".join((ast.get_docstring(ast.parse(path.read_text())) or "").lower().split())
    assert "not here" in words, f"{label(path)} opens without 'Not here: …'"


def test_the_readme_is_what_its_script_writes() -> None:
    done = subprocess.run([sys.executable, ROOT / "scripts" / "readme.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_readme_names_exactly_two_commands_that_set_things_up() -> None:
    """One runs the service, one passes the tests; a third would be a step somebody forgets."""
    blocks = (ROOT / "README.md").read_text().split("```")[1::2]
    commands = [b.strip() for b in blocks if "\n" not in b.strip()]
    assert commands == ["./up", "scripts/test"]
    assert all((ROOT / c).stat().st_mode & 0o111 for c in commands)


def test_up_ends_with_the_readmes_question() -> None:
    question = re.search(r"^curl -s .*?\}\]\}'$", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    assert question and question[0] in (ROOT / "up").read_text().replace("$port", "8080")
