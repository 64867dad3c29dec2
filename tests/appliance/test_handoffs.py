"""What was handed over is known after a restart, a torn line and a full file."""

import json
from pathlib import Path
from typing import Any

import pytest

from appliance import handoffs
from appliance.handoffs import Handoffs


def record(n: int) -> dict[str, Any]:
    return {"id": f"ho-{n}", "time": float(n), "reason": "queue_full", "model": "m", "key": "user"}


def ids(page: dict[str, Any]) -> list[str]:
    return [one["id"] for one in page["data"]]


def test_a_restart_knows_them_the_newest_first(tmp_path: Path) -> None:
    first = Handoffs(tmp_path)
    for n in range(5):
        first.add(record(n))
    first.close()
    again = Handoffs(tmp_path)
    assert again.page(3) == {"object": "list", "data": [record(4), record(3), record(2)], "kept": 5}
    again.close()


def test_a_torn_or_foreign_line_costs_itself_alone(tmp_path: Path) -> None:
    path = tmp_path / "handoffs.jsonl"
    path.write_text(json.dumps(record(1)) + "\n[1]\n{}\n" + "[" * 9000 + '\n{"id": "ho-2", "ti')
    found = Handoffs(tmp_path)
    found.add(record(3))
    found.close()
    assert ids(found.page(9)) == ids(Handoffs(tmp_path).page(9)) == ["ho-3", "ho-1"]


def test_the_file_does_not_grow_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handoffs, "MOST_BYTES", 4000)
    monkeypatch.setattr(handoffs, "KEPT", 20)
    small = Handoffs(tmp_path)
    for n in range(100):
        small.add(record(n))
    small.close()
    assert (tmp_path / "handoffs.jsonl").stat().st_size <= 4000 + 200
    assert ids(Handoffs(tmp_path).page(99)) == [f"ho-{n}" for n in range(99, 79, -1)]


def test_a_folder_that_takes_nothing_costs_no_answer(tmp_path: Path) -> None:
    gone = Handoffs(tmp_path / "nowhere")
    gone.add(record(1))
    gone.close()
    assert ids(gone.page(5)) == ["ho-1"]
