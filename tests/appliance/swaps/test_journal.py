"""What is known of swaps after the service was ended, politely or by kill -9."""

from pathlib import Path

import pytest

from appliance.swaps.journal import MOST_LINES, Journal
from appliance.swaps.swap import Swap


def swap(journal: Journal, to: str = "b") -> Swap:
    return Swap(journal.next_id(), "a", 0, to, 3, by="ops")


def test_ids_go_on_after_a_restart_and_old_swaps_can_still_be_read(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    one = swap(journal)
    journal.begun(one.json())
    one.end("ready")
    journal.ended(one.json())
    again = Journal(tmp_path)
    assert (one.id, again.next_id()) == ("0001", "0002")
    assert again.past[-1]["to"] == "b" and again.past[-1]["state"] == "ready" and again.cut == []


def test_a_swap_that_the_end_of_the_service_cut_is_found_by_the_next_one(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.begun(swap(journal).json())
    assert [one["to"] for one in Journal(tmp_path).cut] == ["b"]


def test_a_line_torn_by_the_end_of_the_machine_costs_only_itself(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    one = swap(journal)
    one.end("ready")
    journal.ended(one.json())
    with (tmp_path / "swaps.jsonl").open("a") as file:
        file.write('{"ended": {"id": "0002", "to": "c", ')
    second = Journal(tmp_path)
    two = swap(second)
    two.end("aborted")
    second.ended(two.json())
    assert [one["state"] for one in Journal(tmp_path).past] == ["ready", "aborted"]


@pytest.mark.parametrize("line", [
    "[1]", "null", '{"begun": {"id": 5}}', '{"ended": {"id": "0009", "to": "b", "state": "ready"}}', "[" * 5000,
    '{"ended": {"id": "0009", "from": "a", "to": "b", "state": "ready", "text": {}, "started": 1, "ended": 2}}',
    '{"ended": {"id": "0009", "from": "a", "to": "b", "state": "ready", "text": "", "started": 1, "ended": 1e400}}',
])  # fmt: skip
def test_a_line_that_is_none_of_ours_costs_only_itself(tmp_path: Path, line: str) -> None:
    one = swap(Journal(tmp_path))
    one.end("ready")
    Journal(tmp_path).ended(one.json())
    with (tmp_path / "swaps.jsonl").open("a") as file:
        file.write(line + "\n")
    again = Journal(tmp_path)
    assert [one["id"] for one in again.past] == ["0001"] and again.cut == []


def test_the_file_does_not_grow_for_ever_under_a_service_that_is_never_restarted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("appliance.swaps.journal.MOST_BYTES", 20_000)
    monkeypatch.setattr("appliance.swaps.journal.MOST_LINES", 4)
    journal = Journal(tmp_path)
    for _ in range(40):
        one = swap(journal)
        one.end("ready")
        journal.ended(one.json())
    assert (tmp_path / "swaps.jsonl").stat().st_size < 30_000
    assert [one["id"] for one in Journal(tmp_path).past] == ["0037", "0038", "0039", "0040"]


def test_who_served_last_is_remembered_and_rubbish_is_nobody(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    assert journal.active() is None
    journal.serves("long-doc", 4)
    assert Journal(tmp_path).active() == "long-doc"
    for text in ("", "[]", "{}", '{"name": 7}', "{"):
        (tmp_path / "active.json").write_text(text)
        assert journal.active() is None


def test_the_file_is_cut_to_the_newest_when_it_has_grown(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    for _ in range(2 * MOST_LINES + 2):
        one = swap(journal)
        one.end("ready")
        journal.past.append(one.json())
        journal._append({"ended": one.json()})
    short = Journal(tmp_path)
    assert len(short.past) == MOST_LINES and short.next_id() == f"{2 * MOST_LINES + 3:04d}"
    assert len((tmp_path / "swaps.jsonl").read_text().splitlines()) == MOST_LINES


def test_a_disk_that_cannot_be_written_costs_history_only(tmp_path: Path) -> None:
    (tmp_path / "swaps.jsonl").mkdir()
    (tmp_path / "active.json").mkdir()
    journal = Journal(tmp_path)
    journal.begun(swap(journal).json())
    journal.serves("a", 0)
    assert journal.active() is None
