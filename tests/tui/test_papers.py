"""Copying and files: what goes to the clipboard, what to a file, and who may read it."""

import stat
from pathlib import Path

from tests.tui.frames import see, tap
from tui import papers


async def test_y_copies_the_panel_and_writes_a_file_and_says_both(window, tmp_path) -> None:
    async with window(120, 36) as pilot:
        await see(pilot, "[READY]")
        await tap(pilot, "5")
        await see(pilot, "- Memory")
        await tap(pilot, "y")
        await see(pilot, "copied (OSC 52)", "written to")
        assert "Later here:" in pilot.app.clipboard and "+--" not in pilot.app.clipboard
    file = next((tmp_path / "xdg_state_home" / "colibri").glob("copy-*.txt"))
    assert file.read_text().rstrip("\n") == pilot.app.clipboard.rstrip("\n")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


async def test_a_text_too_long_for_a_terminal_goes_to_the_file_alone(window) -> None:
    async with window(120, 36) as pilot:
        await see(pilot, "[READY]")
        path = pilot.app.copy("ä" * 40_000, "log")
        await see(pilot, "too long for the clipboard (78 KB, it takes 74)", "written to")
        assert pilot.app.clipboard == "" and path.read_text().count("ä") == 40_000


async def test_w_writes_the_whole_screen(window, tmp_path) -> None:
    async with window(120, 36) as pilot:
        await see(pilot, "[READY]")
        await tap(pilot, "w")
        await see(pilot, "written to")
    text = next((tmp_path / "xdg_state_home" / "colibri").glob("screen-*.txt")).read_text()
    assert "[READY]" in text and "q Quit" in text and len(text.splitlines()) == 36


async def test_a_disk_that_refuses_is_told(window, monkeypatch) -> None:
    def full(kind: str, text: str, ending: str = "txt") -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(papers, "keep", full)
    async with window(120, 36) as pilot:
        await see(pilot, "[READY]")
        await tap(pilot, "w")
        await see(pilot, "no file was written", "No space left on device")
        await tap(pilot, "y")
        await see(pilot, "copied (OSC 52)", "not written to a file")


def test_names_never_leave_the_folder_and_old_files_go(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(papers, "KEPT", 3)
    folder = tmp_path / "xdg_state_home" / "colibri"
    for i in range(6):
        path = papers.keep("../../etc/passwd", f"page {i}")
        assert path.parent == folder
    left = sorted(folder.iterdir())
    assert len(left) == 3 and left[-1].read_text() == "page 5\n"


def test_where_the_home_cannot_be_written_a_folder_of_our_own_in_tmp_is_used(tmp_path, monkeypatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(papers.tempfile, "gettempdir", lambda: str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    place = papers.folder({"XDG_STATE_HOME": str(tmp_path / "file")})
    assert place.parent == tmp_path / "tmp" and stat.S_IMODE(place.stat().st_mode) == 0o700
