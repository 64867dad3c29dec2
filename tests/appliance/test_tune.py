"""Host tuning on a copy of /sys: what is written, what is noted, and that revert restores every byte."""

import argparse
import json
import os
from pathlib import Path

import pytest

from appliance.cli import host
from appliance.tune import CPUS, THP, CannotTune, Change, apply, numa_nodes, plan, recorded, revert, settings

TWO_CPUS = ("powersave", "schedutil")
GOVERNORS = "performance powersave schedutil"


class Host:
    """A folder that looks like the /sys of a host, and the state file beside it.

    A real huge-page file answers `always [madvise] never` after `madvise` is written; `settle` plays that part.
    """

    def __init__(self, folder: Path, thp: str = "never", governors: tuple[str, ...] = TWO_CPUS) -> None:
        self.root = folder / "root"
        self.state = folder / "data" / "host-tune.json"
        self.put(THP, " ".join(f"[{w}]" if w == thp else w for w in ("always", "madvise", "never")) + "\n")
        for i, word in enumerate(governors):
            self.put(f"{CPUS}/cpu{i}/cpufreq/scaling_governor", f"{word}\n")
            self.put(f"{CPUS}/cpu{i}/cpufreq/scaling_available_governors", GOVERNORS + "\n")
        self.put("sys/devices/system/node/node0/cpulist", "0-1\n")
        self.put("sys/devices/system/node/node0/meminfo", "Node 0 MemTotal:       16384 kB\n")

    def put(self, path: str, text: str) -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def settle(self) -> None:
        word = (self.root / THP).read_text().split()
        if len(word) == 1:
            self.put(THP, " ".join(f"[{w}]" if w == word[0] else w for w in ("always", "madvise", "never")) + "\n")

    def values(self) -> dict[str, str]:
        self.settle()
        return {row.path: row.value for row in settings(self.root)}

    def tune(self, **wanted: str) -> list[Change]:
        done = apply(self.root, self.state, plan(settings(self.root, **wanted)))
        self.settle()
        return done


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


def test_apply_then_revert_restores_every_value(machine: Host) -> None:
    before = machine.values()
    assert len(machine.tune()) == 3
    assert set(machine.values().values()) == {"madvise", "performance"}
    assert {u.outcome for u in revert(machine.root, machine.state)} == {"done"}
    assert machine.values() == before
    assert not machine.state.exists()


def test_a_second_apply_keeps_the_oldest_value(machine: Host) -> None:
    machine.tune()
    machine.tune(thp="always", governor="schedutil")
    assert {c.path: (c.old, c.new) for c in recorded(machine.state)}[THP] == ("never", "always")
    revert(machine.root, machine.state)
    assert machine.values()[THP] == "never"


def test_madvise_is_wanted_only_where_it_was_never(tmp_path: Path) -> None:
    assert plan(settings(Host(tmp_path / "a", thp="always", governors=()).root)) == []
    assert plan(settings(Host(tmp_path / "b", thp="madvise", governors=()).root, thp="always"))[0].new == "always"


def test_a_value_somebody_else_changed_is_left_alone(machine: Host) -> None:
    machine.tune()
    path = f"{CPUS}/cpu0/cpufreq/scaling_governor"
    machine.put(path, "schedutil\n")
    outcomes = {u.change.path: u.outcome for u in revert(machine.root, machine.state)}
    assert outcomes[path] == "foreign" and outcomes[THP] == "done"
    assert machine.values()[path] == "schedutil"


def test_revert_after_a_reboot_has_nothing_to_do(machine: Host) -> None:
    before = machine.values()
    machine.tune()
    for path, word in before.items():
        machine.put(path, f"{word}\n")
    machine.settle()
    assert {u.outcome for u in revert(machine.root, machine.state)} == {"already"}
    assert not machine.state.exists()


def test_a_write_that_fails_undoes_the_others(machine: Host) -> None:
    """The kernel may refuse the second of two writes; the host must not be left half tuned."""
    before = machine.values()
    changes = [*plan(settings(machine.root)), Change(f"{CPUS}/cpu1/cpufreq", "a", "b")]
    with pytest.raises(CannotTune, match="refused 'b'"):
        apply(machine.root, machine.state, changes)
    assert machine.values() == before and not machine.state.exists()


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


@pytest.mark.parametrize("path, old", [("etc/motd", "madvise"), (THP, "sudo"), (f"{CPUS}/../../../etc/motd", "x")])
def test_a_forged_state_file_reaches_nothing_else(machine: Host, path: str, old: str) -> None:
    """Somebody who can edit our notes must not become root by them: only known files take only their own words."""
    machine.put("etc/motd", "hello")
    machine.state.parent.mkdir()
    machine.state.write_text(json.dumps({"version": 1, "changes": [{"path": path, "old": old, "new": "hello"}]}))
    with pytest.raises(CannotTune, match="does not offer"):
        revert(machine.root, machine.state)
    assert (machine.root / "etc/motd").read_text() == "hello"


def test_a_link_in_place_of_the_state_file_is_not_followed(machine: Host, tmp_path: Path) -> None:
    machine.state.parent.mkdir()
    machine.state.symlink_to(tmp_path / "elsewhere")
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
    assert len(json.loads(capsys.readouterr().out)["changes"]) == 3
    assert command("revert", "--yes", *where) == 0
    assert machine.values() == before


def test_the_real_host_can_be_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("show") == 0
    assert capsys.readouterr().out.strip()
