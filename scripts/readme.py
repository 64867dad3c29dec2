"""Writes the parts of the README that are made, not typed: the session, the numbers, the tree.

    python scripts/readme.py           write them
    python scripts/readme.py --check   exit 1 where they differ

A made part stands between `<!-- name -->` and `<!-- /name -->`. Not here: recording the session (session.py), measuring
(benchmarks/).
"""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.house import ROOT, caption, label

README = ROOT / "README.md"
SESSION = ROOT / "docs" / "session.txt"
NUMBERS = ROOT / "benchmarks" / "results" / "table.md"
TOP = ("up", "Dockerfile", "compose.yaml", "pyproject.toml", ".ci/run")
FOLDERS = ("engine", "appliance", "tui", "profiles", "scripts", "benchmarks", "tests")
# One line for a folder whose files mirror another's or are data.
CLOSED = {"tests": "mirrors the packages; rules of the house in test_*.py at its top", "profiles": ""}


def tree() -> str:
    """Every file with its caption, folders first-level in reading order."""
    lines = [f"{name:<26} {caption(ROOT / name)}".rstrip() for name in TOP if (ROOT / name).is_file()]
    for name in FOLDERS:
        if (ROOT / name).is_dir():
            lines += ["", *_folder(ROOT / name, 0)]
    return "```\n" + "\n".join(lines) + "\n```"


def _folder(folder: Path, depth: int) -> list[str]:
    pad = "  " * depth
    name = label(folder)
    opening = folder / "__init__.py"
    words = CLOSED.get(name) or (caption(opening) if opening.is_file() else "")
    lines = [f"{pad}{folder.name + '/':<{26 - len(pad)}} {words}".rstrip()]
    if CLOSED.get(name):
        return lines
    entries = [e for e in sorted(folder.iterdir()) if e.name[0] not in "._" and e.name != "results"]
    for entry in sorted(entries, key=lambda e: (e.is_dir(), e.name)):
        if entry.is_dir():
            lines += _folder(entry, depth + 1)
        elif entry.suffix in (".py", ".yaml", "") and (words := caption(entry)):
            lines.append(f"{pad}  {entry.name:<{24 - len(pad)}} {words}")
    return lines


def session() -> str:
    return f"```console\n{SESSION.read_text().rstrip()}\n```" if SESSION.is_file() else "not recorded yet"


def numbers() -> str:
    return NUMBERS.read_text().rstrip() if NUMBERS.is_file() else "not measured yet"


def made(text: str) -> str:
    """The README with each made part replaced by what it should be now."""
    for name, part in {"session": session, "numbers": numbers, "tree": tree}.items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        if not pattern.search(text):
            raise SystemExit(f"README.md has no part '<!-- {name} -->'")
        fresh = part()
        text = pattern.sub(lambda m, fresh=fresh: f"{m[1]}{fresh}\n{m[2]}", text)
    return text


def main() -> int:
    now = README.read_text()
    wanted = made(now)
    if "--check" not in sys.argv[1:]:
        README.write_text(wanted)
    elif now != wanted:
        print("README.md is not what its sources say; run: python scripts/readme.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
