"""The source files of the house, their captions and what they import. Not here: the rules, which are tests."""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("engine", "appliance", "tui")
MODULES = [p for top in PACKAGES for p in sorted((ROOT / top).rglob("*.py"))]
EVERYTHING = MODULES + [p for top in ("tests", "scripts", "benchmarks") for p in sorted((ROOT / top).rglob("*.py"))]


def label(path: Path) -> str:
    """The path as a reader of the repository would write it."""
    return str(path.relative_to(ROOT))


def module_name(path: Path) -> str:
    """`engine/gguf/reader.py` is `engine.gguf.reader`; a package's `__init__` is the package."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(path: Path) -> set[str]:
    """Every name an import statement of the file asks for, at any depth, as an absolute dotted name."""
    package = path.relative_to(ROOT).parent.parts
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            stem = ".".join([*base, *filter(None, [node.module])])
            found |= {f"{stem}.{alias.name}" for alias in node.names}
    return found


def caption(path: Path) -> str:
    """The first sentence of a module's docstring; of a shell script, of its first comment line; else empty."""
    text = path.read_text()
    if path.suffix == ".py":
        text = ast.get_docstring(ast.parse(text)) or ""
    else:
        comments = [line[1:].strip() for line in text.splitlines() if line.startswith("#") and line[1:2] != "!"]
        text = comments[0] if comments else ""
    first = " ".join(text.split("\n\n")[0].split())
    end = first.find(". ")
    return (first if end < 0 else first[:end]).rstrip(".")
