"""The results file of this machine: one JSON, a section per benchmark. Not here: measuring, the README's table."""

import datetime
import json
from pathlib import Path
from typing import Any

from benchmarks.machine import describe, machine_name
from benchmarks.model import digest

RESULTS = Path(__file__).parent / "results"


def path() -> Path:
    """benchmarks/results/<machine>.json."""
    return RESULTS / f"{machine_name()}.json"


def load(section: str) -> Any:
    """What the file says in one section; {} when it says nothing yet."""
    return json.loads(path().read_text()).get(section, {}) if path().exists() else {}


def save(section: str, content: Any) -> Path:
    """Put one section into the file; other sections stay."""
    RESULTS.mkdir(exist_ok=True)
    kept = json.loads(path().read_text()) if path().exists() else {}
    path().write_text(json.dumps(kept | {"machine": describe(), section: content}, indent=1) + "\n")
    return path()


def today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def stamp(model: Path) -> dict[str, str]:
    """What every section says first: when, and of which file."""
    return {"date": today(), "model": model.name, "model_sha256": digest(model)}
