"""The journal is the truth and the index follows it: torn, damaged, lost, compacted, on a full disk or a network's."""

import errno
import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import appliance.batches.store as store_module
from appliance.batches.job import AHEAD, ENDED, STATUSES, advanced, new_batch, public
from appliance.batches.results import CannotStore
from appliance.batches.store import Store
from engine.errors import UsageError


def doc(name: str, status: str = "validating", owner: str = "user") -> dict[str, Any]:
    return {"id": name, "owner": owner, "status": status, "purpose": None}


def opened(folder: Path) -> Store:
    store = Store(folder)
    store.open()
    return store


def ids(docs: list[dict[str, Any]]) -> list[str]:
    return [one["id"] for one in docs]


def test_documents_are_there_after_a_restart_in_their_order_and_newest_form(tmp_path: Path) -> None:
    store = opened(tmp_path)
    for i in range(5):
        store.put("batch", f"b{i}", doc(f"b{i}"))
    store.put("batch", "b1", doc("b1", "completed"))
    store.put("batch", "b3", None)
    store.put("file", "f", {**doc("f", owner="other"), "purpose": "batch"})
    for _ in range(2):
        assert ids(store.page("batch", None, 10)) == ["b4", "b2", "b1", "b0"]
        assert ids(store.page("batch", None, 2, after="b4")) == ["b2", "b1"]
        assert ids(store.page("batch", None, 10, after="b1", oldest_first=True)) == ["b2", "b4"]
        assert ids(store.of_status(("validating",))) == ["b0", "b2", "b4"]
        assert store.get("batch", "b1") == doc("b1", "completed") and store.get("batch", "b3") is None
        assert store.get("file", "f", "user") is None and store.get("batch", "f") is None
        assert store.figures() == (1, 4)
        store.close()
        store = opened(tmp_path)
    store.close()


@pytest.mark.parametrize("harm", ["none", "gone", "garbage", "older"])
def test_whatever_becomes_of_the_index_the_journal_restores_it(harm: str, tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.put("batch", "a", doc("a"))
    store.close()
    older = (tmp_path / "index.sqlite").read_bytes()
    store = opened(tmp_path)
    store.put("batch", "b", doc("b"))
    store.put("batch", "a", doc("a", "completed"))
    store.close()
    for end in ("-wal", "-shm"):
        (tmp_path / f"index.sqlite{end}").unlink(missing_ok=True)
    if harm == "gone":
        (tmp_path / "index.sqlite").unlink()
    elif harm == "garbage":
        (tmp_path / "index.sqlite").write_bytes(b"SQLite format 3\0" + os.urandom(9000))
    elif harm == "older":
        (tmp_path / "index.sqlite").write_bytes(older)
    store = opened(tmp_path)
    assert ids(store.page("batch", None, 9)) == ["b", "a"]
    assert store.get("batch", "a") == doc("a", "completed")
    store.close()
    assert sqlite3.connect(tmp_path / "index.sqlite").execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_torn_line_is_cut_and_a_damaged_one_costs_its_change_alone(tmp_path: Path) -> None:
    store = opened(tmp_path)
    for name in "abc":
        store.put("batch", name, doc(name))
    store.close()
    journal = tmp_path / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    for bad in (b"{}\n", b"\xff\n", b'{"kind":"batch","id":"b","doc":[]}\n', b'{"kind":"x","id":"b","doc":null}\n'):
        journal.write_bytes(lines[0] + bad + lines[2] + lines[1][:30])
        store = opened(tmp_path)
        assert ids(store.page("batch", None, 9)) == ["c", "a"]
        store.put("batch", "d", doc("d"))
        store.close()
        store = opened(tmp_path)
        assert ids(store.page("batch", None, 9)) == ["d", "c", "a"], "the new line was glued to the torn one"
        store.close()


def test_a_full_disk_leaves_the_journal_whole_and_the_document_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(tmp_path)
    store.put("batch", "a", doc("a"))
    write = os.write

    def full(fd: int, data: Any) -> int:
        if len(data) > 20:
            return write(fd, data[:20])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(CannotStore, match="No space left"):
        store.put("batch", "a", doc("a", "in_progress"))
    monkeypatch.undo()
    assert store.get("batch", "a") == doc("a")
    store.put("batch", "b", doc("b"))
    store.close()
    assert [json.loads(line)["id"] for line in (tmp_path / "journal.jsonl").read_bytes().splitlines()] == ["a", "b"]


def test_a_long_journal_is_written_anew_with_what_is_in_force(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "COMPACT_BYTES", 4096)
    store = opened(tmp_path)
    for status in ("validating", "in_progress", "completed") * 20:
        store.put("batch", "a", doc("a", status))
    store.put("batch", "b", doc("b"))
    store.close()
    store = opened(tmp_path)
    assert len((tmp_path / "journal.jsonl").read_bytes().splitlines()) == 2
    store.put("batch", "c", doc("c"))
    store.close()
    store = opened(tmp_path)
    assert ids(store.page("batch", None, 9)) == ["c", "b", "a"]
    store.close()


def test_a_folder_of_a_network_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "disk_kind", lambda path: "network")
    with pytest.raises(UsageError, match="network file system"):
        Store(tmp_path / "b").open()


def test_states_only_go_forward_and_every_one_ends(tmp_path: Path) -> None:
    for status in STATUSES:
        ahead = AHEAD.get(status, ())
        assert (status in ENDED) == (not ahead)
        assert all(STATUSES.index(status) < STATUSES.index(later) or later == "finalizing" for later in ahead)
    batch = new_batch("user", "/v1/completions", "file-1", "24h", {"colibri_expires_hours": "2"})
    assert batch["expires_at"] == batch["created_at"] + 7200
    going = advanced(batch, "in_progress")
    assert going["in_progress_at"] and "owner" not in public(going)
    with pytest.raises(AssertionError):
        advanced(advanced(going, "finalizing"), "in_progress")
