"""Host tuning on a copy of /sys: what is written, what is noted, and that revert restores every byte."""

import argparse
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from appliance.cli import host
from appliance.machine.tune import CPUS, THP, apply, numa_nodes, plan, revert, settings
from appliance.machine.tune_notes import BOOT_ID, CannotTune, Change, alone, recorded
from tests.appliance.machine.sysfs import GOVERNOR, Host


def command(*argv: str) -> int:
    parser = argparse.ArgumentParser()
    host.add_arguments(parser)
    return host.run(parser.parse_args(argv))


@pytest.fixture
def machine(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_show_and_plan_write_nothing(machine: Host) -> None:
    before = machine.values()
    assert [c.new for c in plan(settings(machine.root))] == ["madvise", "performance", "performance"]
    assert machine.values() == before and not machine.state.exists()


def test_apply_then_revert_restores_every_byte(machine: Host) -> None:
    before = machine.bytes()
    assert len(machine.tune()) == 3
    assert set(machine.values().values()) == {"madvise", "performance"}
    assert set(machine.reverted().values()) == {"done"}
    assert machine.bytes() == before
    assert not machine.state.exists()


def test_the_real_host_is_byte_identical_after_apply_and_revert(tmp_path: Path) -> None:
    """Where this machine lets us write; the values differ for some milliseconds. Elsewhere it must refuse in words."""
    root, state = Path("/"), tmp_path / "notes.json"
    files = [Path("/", row.path) for row in settings(root)]
    before = {path: path.read_bytes() for path in files}
    thp = next((row.value for row in settings(root) if row.path == THP), "")
    changes = plan(settings(root, thp="madvise" if thp == "always" else "always"))
    if not all(os.access(f"/{c.path}", os.W_OK) for c in changes):
        with pytest.raises(CannotTune, match="as root"):
            apply(root, state, changes)
    else:
        try:
            assert apply(root, state, changes) == changes
            assert all(c.new in Path("/", c.path).read_text() for c in changes)
            assert {u.outcome for u in revert(root, state)} == {"done"} or not changes
        finally:
            for change in changes:
                Path("/", change.path).write_text(change.old)
    assert {path: path.read_bytes() for path in files} == before


def test_a_second_apply_keeps_the_oldest_value(machine: Host) -> None:
    machine.tune()
    machine.tune(thp="always", governor="schedutil")
    assert {c.path: (c.old, c.new) for c in recorded(machine.state)}[THP] == ("never", "always")
    machine.reverted()
    assert machine.values()[THP] == "never"


def test_a_value_set_by_somebody_else_between_two_applies_is_what_revert_restores(machine: Host) -> None:
    machine.tune()
    machine.put(GOVERNOR.format(0), "schedutil\n")
    machine.tune()
    machine.reverted()
    assert machine.values() == {THP: "never", GOVERNOR.format(0): "schedutil", GOVERNOR.format(1): "schedutil"}


def test_madvise_is_wanted_only_where_it_was_never(tmp_path: Path) -> None:
    assert plan(settings(Host(tmp_path / "a", thp="always", governors=()).root)) == []
    assert plan(settings(Host(tmp_path / "b", thp="madvise", governors=()).root, thp="always"))[0].new == "always"


def test_a_value_somebody_else_changed_is_left_alone(machine: Host) -> None:
    machine.tune()
    path = GOVERNOR.format(0)
    machine.put(path, "schedutil\n")
    outcomes = machine.reverted()
    assert outcomes[path] == "foreign" and outcomes[THP] == "done"
    assert machine.values()[path] == "schedutil"


def test_notes_of_an_earlier_start_of_the_machine_are_void(machine: Host) -> None:
    """The host chose the same values by itself since: they are its own now, and the oldest value is no longer known."""
    machine.tune()
    machine.put(BOOT_ID, "77aa\n")
    before = machine.values()
    assert machine.reverted() == {} and machine.values() == before and not machine.state.exists()
    machine.state.write_text(json.dumps({"version": 1, "boot": "4d1f", "changes": [["nonsense"]]}))
    with pytest.raises(CannotTune):
        machine.reverted()


def test_an_apply_after_a_restart_notes_what_stands_there_now(machine: Host) -> None:
    machine.tune()
    machine.put(BOOT_ID, "77aa\n")
    machine.put(GOVERNOR.format(0), "schedutil\n")
    assert [c.path for c in machine.tune()] == [GOVERNOR.format(0)]
    assert [(c.path, c.old) for c in recorded(machine.state)] == [(GOVERNOR.format(0), "schedutil")]


def test_a_cpu_that_is_switched_off_keeps_its_note_until_it_is_back(machine: Host) -> None:
    """The kernel gives a CPU its last governor again when it returns."""
    machine.tune()
    folder = machine.root / CPUS / "cpu1"
    folder.rename(machine.root / "away")
    assert machine.reverted() == {THP: "done", GOVERNOR.format(0): "done", GOVERNOR.format(1): "gone"}
    (machine.root / "away").rename(folder)
    assert machine.values()[GOVERNOR.format(1)] == "performance"
    assert machine.reverted() == {GOVERNOR.format(1): "done"} and not machine.state.exists()
    assert machine.values()[GOVERNOR.format(1)] == "schedutil"


def test_a_driver_that_no_longer_offers_the_old_word_does_not_keep_the_rest(
    machine: Host, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.tune()
    machine.put(f"{CPUS}/cpu1/cpufreq/scaling_available_governors", "performance\n")
    machine.settle()
    assert command("revert", "--yes", "--root", str(machine.root), "--state", str(machine.state)) == 1
    told = capsys.readouterr()
    assert "1 of 3 values could not be put back" in told.err and "does not take back" in told.out
    machine.settle()
    assert machine.values()[THP] == "never" and [c.path for c in recorded(machine.state)] == [GOVERNOR.format(1)]


def test_a_word_that_the_kernel_takes_but_does_not_show_is_a_refusal(
    machine: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some drivers answer a governor's name with another one. cpu1's file is such: a device that keeps nothing."""
    before = machine.values()
    monkeypatch.setattr("appliance.machine.tune._value", deaf(machine, GOVERNOR.format(1), "ondemand"))
    with pytest.raises(CannotTune, match=r"took 'performance' for /sys.*cpu1.* but shows 'ondemand'"):
        machine.tune()
    monkeypatch.undo()
    after = machine.values()
    assert (after[THP], after[GOVERNOR.format(0)]) == (before[THP], before[GOVERNOR.format(0)])
    assert {c.path for c in recorded(machine.state)} == set(before), "what could not be put back stays noted"


def deaf(machine: Host, path: str, word: str) -> Callable[[Path, str], str]:
    from appliance.machine.tune import _value

    return lambda root, asked: word if asked == path else _value(root, asked)


def test_two_at_once_do_not_lose_each_other_s_notes(machine: Host) -> None:
    before = machine.values()
    with alone(machine.state):
        for act in (machine.tune, machine.reverted):
            if act == machine.reverted:
                machine.state.write_text(json.dumps({"version": 1, "changes": []}))
            with pytest.raises(CannotTune, match="another host-tune"):
                act()
    assert machine.values() == before
    assert len(machine.tune()) == 3


def test_a_value_that_moves_between_plan_and_apply_stops_it(machine: Host) -> None:
    changes = plan(settings(machine.root))
    machine.put(GOVERNOR.format(0), "schedutil\n")
    before = machine.values()
    with pytest.raises(CannotTune, match="became 'schedutil' meanwhile"):
        apply(machine.root, machine.state, changes)
    assert machine.values() == before and not machine.state.exists()


def test_a_write_that_fails_undoes_the_others(machine: Host) -> None:
    """The kernel may refuse the second of two writes; the host must not be left half tuned."""
    before = machine.values()
    machine.put("sys/other", "a\n")
    changes = [*plan(settings(machine.root)), Change("sys/other", "a", "b"), Change(f"{CPUS}/cpu1", "", "b")]
    with pytest.raises(CannotTune, match=r"refused 'b' for .*cpu1: Is a directory"):
        apply(machine.root, machine.state, changes)
    assert machine.values() == before and not machine.state.exists()
    assert (machine.root / "sys/other").read_text().strip() == "a"


@pytest.mark.parametrize(
    "text",
    [
        "not json",
        "[]",
        '{"version": 2, "changes": []}',
        '{"version": 1, "changes": [{"path": 1, "old": "a", "new": "b"}]}',
        '{"version": 1, "changes": [{"path": "etc/passwd"}]}',
    ],
)
def test_a_damaged_state_file_stops_everything(machine: Host, text: str) -> None:
    machine.state.parent.mkdir()
    machine.state.write_text(text)
    before = machine.values()
    for act in (lambda: machine.tune(), lambda: revert(machine.root, machine.state)):
        with pytest.raises(CannotTune, match="nothing was changed"):
            act()
    assert machine.values() == before


@pytest.mark.parametrize("path", ["etc/motd", f"{CPUS}/../../../etc/motd", f"{CPUS}/cpu0/online", f"x/{THP}"])
def test_a_forged_state_file_reaches_nothing_else(machine: Host, path: str) -> None:
    """Somebody who can edit our notes must not become root by them: only known files take only their own words."""
    machine.put("etc/motd", "hello")
    machine.state.parent.mkdir()
    machine.state.write_text(json.dumps({"version": 1, "changes": [{"path": path, "old": "x", "new": "hello"}]}))
    with pytest.raises(CannotTune, match="does not offer"):
        revert(machine.root, machine.state)
    assert (machine.root / "etc/motd").read_text() == "hello"


def test_a_forged_word_is_never_written(machine: Host) -> None:
    machine.state.parent.mkdir()
    machine.state.write_text(json.dumps({"version": 1, "changes": [{"path": THP, "old": "sudo", "new": "never"}]}))
    assert machine.reverted() == {THP: "stuck"} and machine.values()[THP] == "never"


@pytest.mark.parametrize("what", ["link", "pipe", "folder"])
def test_something_else_in_place_of_the_state_file_is_not_followed(machine: Host, tmp_path: Path, what: str) -> None:
    machine.state.parent.mkdir()
    if what == "link":
        machine.state.symlink_to(tmp_path / "elsewhere")
    elif what == "pipe":
        os.mkfifo(machine.state)
    else:
        machine.state.mkdir()
    with pytest.raises(CannotTune):
        recorded(machine.state)


def test_without_the_right_nothing_is_written(machine: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root, who runs the tests in a container, may write everything; the kernel's answer is played instead."""
    monkeypatch.setattr(os, "access", lambda path, mode: not str(path).endswith(THP))
    with pytest.raises(CannotTune, match="as root"):
        machine.tune()
    assert not machine.state.exists()


def test_a_folder_that_takes_no_notes_means_no_change(machine: Host) -> None:
    before = machine.values()
    machine.state.parent.write_text("a file where a folder should be")
    with pytest.raises(CannotTune):
        machine.tune()
    assert machine.values() == before


def test_a_host_without_any_of_it_is_no_error(tmp_path: Path) -> None:
    assert settings(tmp_path) == [] and numa_nodes(tmp_path) == []
    assert apply(tmp_path, tmp_path / "state.json", []) == []


def test_numa_nodes_are_told_as_the_kernel_tells_them(machine: Host) -> None:
    assert numa_nodes(machine.root) == [{"node": 0, "cpus": "0-1", "memory_bytes": 16 << 20}]


def test_the_command_is_dry_until_yes(machine: Host, capsys: pytest.CaptureFixture[str]) -> None:
    before = machine.values()
    where = ["--root", str(machine.root), "--state", str(machine.state), "--json"]
    assert command("apply", *where) == 0
    assert json.loads(capsys.readouterr().out)["dry_run"] is True
    assert machine.values() == before
    assert command("apply", "--yes", *where) == 0
    machine.settle()
    capsys.readouterr()
    assert command("status", *where) == 0
    told = json.loads(capsys.readouterr().out)
    assert [row["outcome"] for row in told["changes"]] == ["done"] * 3 and told["void"] is False
    assert command("status", *where[:-1]) == 0
    assert capsys.readouterr().out.count("in force") == 3
    assert command("revert", "--yes", *where) == 0
    assert machine.values() == before


def test_status_knows_that_a_restart_undid_it(machine: Host, capsys: pytest.CaptureFixture[str]) -> None:
    machine.tune()
    machine.put(BOOT_ID, "77aa\n")
    assert command("status", "--root", str(machine.root), "--state", str(machine.state)) == 0
    assert "started anew" in capsys.readouterr().out


def test_one_setting_may_be_left_out(machine: Host, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--root", str(machine.root), "--state", str(machine.state)]
    assert command("apply", "--yes", "--only", "thp", *where) == 0
    assert machine.values() == {THP: "madvise", GOVERNOR.format(0): "powersave", GOVERNOR.format(1): "schedutil"}


def test_the_real_host_can_be_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("show") == 0
    assert capsys.readouterr().out.strip()
