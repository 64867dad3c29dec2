"""The editor: checked while one types, saved without losing a character, safe without a link. Scripted service."""

import asyncio
from pathlib import Path

import pytest

from tests.tui.fake import Fake
from tests.tui.frames import frame, see, tap, until
from tests.tui.shelf import TEXTS, Shelf, etag
from tui import rescue
from tui.panels.faults import help_of, key_at, listed, marks
from tui.panels.pieces import plain
from tui.screens.editor import EditorScreen
from tui.snap import Facts

PUT = ("PUT", "/admin/profiles/long-doc")


@pytest.fixture
def shelf(fake: Fake) -> Shelf:
    return Shelf(fake)


async def edit(pilot, name: str = "long-doc", words: str = "nothing is wrong") -> EditorScreen:
    await see(pilot, "[READY]")
    pilot.app.tell_screen("profiles", "edit", [name])
    await see(pilot, f"Edit  {name}.yaml", words)
    screen = pilot.app.screen
    assert isinstance(screen, EditorScreen)
    return screen


def write(screen: EditorScreen, text: str) -> None:
    """As if typed: one change that can be undone."""
    area = screen.area
    area.replace(text, (0, 0), area.document.end)


async def test_a18_errors_are_visited_and_kept_as_a_draft_and_a_conflict_loses_nothing(window, shelf, fake) -> None:
    bad = TEXTS["long-doc"].replace("32768", "65536").replace("fallback: quick-verify", "fallback: quick-verfy")
    async with window(120, 36) as pilot:
        screen = await edit(pilot)
        write(screen, bad)
        await see(pilot, "2 errors", "4:11", "10:11", "did you mean 'quick-verify'?", "(^r Review)")
        margin = [line[1:2] for line in frame(pilot.app).splitlines()[3:13]]
        assert [i for i, sign in enumerate(margin, 1) if sign == "E"] == [4, 10]
        screen.area.move_cursor((0, 0))
        await pilot.press("ctrl+g")
        assert screen.area.cursor_location == (3, 10)
        await pilot.press("ctrl+g")
        assert screen.area.cursor_location == (9, 10)
        await pilot.press("ctrl+g")
        assert screen.area.cursor_location == (3, 10)
        await pilot.press("ctrl+s")
        await see(pilot, "Saved as a draft (2 errors")
        assert shelf.drafts["long-doc"] == bad
        assert shelf.texts["long-doc"] == TEXTS["long-doc"]
        await pilot.press("ctrl+r")
        await pilot.pause()
        assert fake.bodies("POST", "/admin/swap") == []
        assert len(pilot.app.screen_stack) == 2
        good = bad.replace("65536", "16384").replace("verfy", "verify") + "# caf\u00e9\n"
        write(screen, good)
        await see(pilot, "0 errors  0 warnings")
        shelf.conflicts = 1
        await pilot.press("ctrl+s")
        await see(pilot, "was changed meanwhile", "Keep mine")
        assert shelf.texts["long-doc"].endswith("# saved by somebody else\n")
        await pilot.press("tab", "enter")
        await until(pilot, lambda: shelf.texts["long-doc"] == good)
        assert screen.text == good
        await see(pilot, "Saved long-doc as rev 8")
        assert not screen.is_unsaved


async def test_a05_everything_printable_is_typed_and_an_f_key_still_leaves(window, shelf: Shelf) -> None:
    async with window(80, 24) as pilot:
        screen = await edit(pilot)
        screen.area.move_cursor(screen.area.document.end)
        await pilot.press(*"1", "colon", "question_mark", "slash", *"qsyz", "plus", *"AD")
        assert screen.text == TEXTS["long-doc"] + "1:?/qsyz+AD"
        assert pilot.app.screen is screen
        await pilot.press("f7")
        await until(pilot, lambda: pilot.app.current_mode == "logs")
        await pilot.press("f2")
        await until(pilot, lambda: pilot.app.screen is screen)
        assert screen.text == TEXTS["long-doc"] + "1:?/qsyz+AD"


async def test_an_old_answer_never_lies_over_a_newer_one(window, shelf: Shelf, fake: Fake) -> None:
    gate = asyncio.Event()
    plans: list[str] = []

    async def wait(text: str) -> None:
        plans.append(text)
        await gate.wait()

    async with window(120, 36) as pilot:
        screen = await edit(pilot)
        real, client = shelf.plan("long-doc", TEXTS["long-doc"]), pilot.app.client
        ask = client.post

        async def slow(path: str, body=None, headers=None):  # the answer to the first text comes last
            if path == "/admin/plan" and "40001" in body["text"]:
                await wait(body["text"])
            return await ask(path, body, headers)

        client.post = slow
        write(screen, TEXTS["long-doc"].replace("32768", "40001"))
        await until(pilot, lambda: len(plans) == 1)
        write(screen, TEXTS["long-doc"].replace("32768", "1024"))
        wanted = shelf.plan("long-doc", screen.text)
        await see(pilot, f"{wanted['total_bytes'] / 2**30:.2f} GiB", f"was {real['total_bytes'] / 2**30:.2f}")
        gate.set()
        await pilot.pause(0.1)
        assert f"{wanted['total_bytes'] / 2**30:.2f} GiB" in frame(pilot.app)


async def test_a_file_of_which_only_the_beginning_came_is_not_opened(window, shelf: Shelf, fake: Fake) -> None:
    code, document = shelf.document("long-doc")
    fault = {"line": 1, "col": 1, "severity": "error", "message": "over 65536 bytes"}
    cut = {**document, "text": ("name: long-doc\n" + "# x\n" * 20_000)[:65536], "problems": [fault]}
    fake.answers["GET", "/admin/profiles/long-doc"] = lambda _: (code, cut)
    async with window(120, 36) as pilot:
        screen = await edit(pilot, words="cannot be opened: it has over 65536 bytes")
        await tap(pilot, "x", "ctrl+s")
        await pilot.pause()
        assert (screen.text, fake.bodies("PUT", "/admin/profiles/long-doc")) == ("", [])


async def test_without_a_link_the_text_stays_and_the_save_says_why(window, shelf: Shelf, fake: Fake) -> None:
    async with window(120, 36) as pilot:
        screen = await edit(pilot)
        write(screen, TEXTS["long-doc"] + "# kept\n")
        await fake.stop()
        await see(pilot, "[NO LINK]")
        await pilot.press("ctrl+s", *"x")
        await see(pilot, "(^s Save)")
        assert screen.text.replace("x", "").endswith("# kept\n".replace("x", ""))
        await fake.start()
        await see(pilot, "[READY]", timeout_s=15)
        await pilot.press("ctrl+s")
        await until(pilot, lambda: shelf.texts["long-doc"] == screen.text or "long-doc" in shelf.drafts)


async def test_closing_with_unsaved_text_asks_and_cancel_keeps_it(window, shelf: Shelf) -> None:
    async with window(80, 24) as pilot:
        screen = await edit(pilot)
        write(screen, TEXTS["long-doc"] + "# more\n")
        await pilot.press("escape")
        await see(pilot, "has unsaved text")
        await pilot.press("enter")
        await until(pilot, lambda: pilot.app.screen is screen)
        assert pilot.app.unsaved() == ["long-doc"]
        await pilot.press("escape")
        await see(pilot, "has unsaved text")
        await pilot.press("tab", "enter")
        await until(pilot, lambda: pilot.app.screen is not screen)
        assert shelf.texts["long-doc"] == TEXTS["long-doc"] + "# more\n"
        assert pilot.app.unsaved() == []


async def test_take_theirs_keeps_mine_in_a_file_and_without_a_file_on_the_screen(
    window, shelf: Shelf, tmp_path: Path, monkeypatch
) -> None:
    mine = TEXTS["long-doc"] + "# mine\n"

    def no_room(*_: str) -> Path:
        raise OSError("no space left")

    async with window(120, 36) as pilot:
        screen = await edit(pilot)
        write(screen, mine)
        await see(pilot, "nothing is wrong")
        shelf.conflicts = 1
        await pilot.press("ctrl+s")
        await see(pilot, "Take theirs")
        with monkeypatch.context() as full:
            full.setattr("tui.papers.keep", no_room)
            await pilot.press("tab", "tab", "enter")
            await see(pilot, "no file was written")
        assert screen.text == mine and pilot.app.screen is screen
        await pilot.press("ctrl+s")
        await see(pilot, "Take theirs")
        await pilot.press("tab", "tab", "enter")
        await until(pilot, lambda: screen.text.endswith("# saved by somebody else\n"))
        kept = list(tmp_path.rglob("mine-long-doc-*.yaml"))
        assert [path.read_text() for path in kept] == [mine]


async def test_text_of_a_program_that_was_killed_is_offered_again(window, shelf: Shelf, monkeypatch) -> None:
    lost = TEXTS["long-doc"] + "# typed, never saved\n"
    async with window(120, 36) as pilot:
        screen = await edit(pilot)
        write(screen, lost)
        await until(pilot, lambda: any(p.read_text() == lost for p in rescue.papers.folder().glob("rescue-*")))
    # The window is gone without a word, and so is its process: another number, which no process has.
    [path] = rescue.papers.folder().glob("rescue-long-doc-*.yaml")
    path.rename(path.with_name("rescue-long-doc-999999999.yaml"))
    async with window(120, 36) as pilot:
        await see(pilot, "[READY]")
        pilot.app.tell_screen("profiles", "edit", ["long-doc"])
        await see(pilot, "Unsaved text of long-doc was found", "[ Leave it ]")
        await pilot.press("tab", "enter")
        await see(pilot, "# typed, never saved", "modified")
        assert pilot.app.screen.text == lost
        await pilot.press("ctrl+s")
        await until(pilot, lambda: shelf.texts["long-doc"] == lost)
        await until(pilot, lambda: not list(rescue.papers.folder().glob("rescue-*.yaml")))


async def test_a_broken_file_opens_on_its_first_error(window, shelf: Shelf) -> None:
    async with window(80, 24) as pilot:
        screen = await edit(pilot, "draft-x", "2 errors")
        await until(pilot, lambda: screen.area.cursor_location == (1, 10))


async def test_a_read_only_view_types_nothing_and_saves_nothing(window, shelf: Shelf, fake: Fake) -> None:
    async with window(80, 24) as pilot:
        pilot.app.set_readonly()
        screen = await edit(pilot)
        await pilot.press(*"abc", "enter", "ctrl+s", "ctrl+r")
        assert screen.text == TEXTS["long-doc"]
        assert "read-only" in frame(pilot.app)
        assert [a for a in fake.asked if a.method in ("PUT", "DELETE")] == []


async def test_a_save_that_fails_keeps_the_text_and_one_the_service_finds_wrong_is_a_draft(
    window, shelf: Shelf, fake: Fake
) -> None:
    async with window(120, 36) as pilot:
        screen = await edit(pilot)
        real = fake.answers[PUT]
        fake.answers[PUT] = lambda _: (507, {"error": {"message": "no space left in /data", "code": "not_saved"}})
        write(screen, TEXTS["long-doc"] + "# more\n")
        await until(pilot, lambda: screen._checked == screen.text)
        await pilot.press("ctrl+s")
        await see(pilot, "Not saved: no space left in /data")
        assert screen.is_unsaved
        fault = {"line": 2, "col": 1, "severity": "error", "path": "name", "message": "cannot be", "hint": ""}
        refusal = {"error": {"message": "wrong", "code": "profile_invalid", "problems": [fault]}}
        fake.answers[PUT] = lambda asked: real(asked) if asked.body["draft"] else (400, refusal)
        await pilot.press("ctrl+s")
        await see(pilot, "Saved as a draft (1 error", "2:1")
        assert shelf.drafts["long-doc"] == screen.text
        saved = [asked for asked in fake.asked if asked.method == "PUT"][-1]
        assert saved.headers["If-Match"] == f'"{etag(TEXTS["long-doc"])}"'


def test_the_key_under_the_cursor_is_the_one_it_stands_on_or_belongs_to() -> None:
    text = "# note\nname: a\n\naliases:\n  - one\n  - two\nkv: q8\n"
    assert [key_at(text, line) for line in range(7)] == ["", "name", "", "aliases", "aliases", "aliases", "kv"]
    assert key_at("", 0) == key_at("x", 9) == ""


def test_help_and_problems_take_what_another_version_sends() -> None:
    field = Facts({"help": "positions", "kind": "engine", "default": None, "why": "0 lets the planner choose"})
    told = [plain(line) for line in help_of("ctx_size", field, 40)]
    assert "Restart: yes, a new engine" in told
    assert "Default none" in told
    assert "the file's name" in " ".join(map(plain, help_of("name", Facts(), 40))), "the service has no help for it"
    odd = [Facts({}), Facts({"line": "x", "severity": 7}), Facts({"line": 3, "severity": "error", "message": "m"})]
    assert len(listed(odd, 40)) == 3
    assert marks(odd)[3] == "E"


def test_a_rescue_that_cannot_be_written_is_no_fault(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr(rescue.papers, "folder", lambda: tmp_path / "gone")
    assert rescue.write("long-doc", "text") is None
    assert rescue.left("long-doc") is None
    rescue.drop("long-doc")
