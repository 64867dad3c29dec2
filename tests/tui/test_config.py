"""The settings: which layer wins, and what a wrong file, variable or flag says."""

from pathlib import Path

import pytest

from tui import config
from tui.config import OPTIONS, Config, load
from tui.keymap import KEYS, checked


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def folder(tmp_path) -> Path:
    return tmp_path / "xdg"


def loaded(folder: Path, user: str = "", system: str = "", flags=None, **env: str) -> Config:
    where = write(folder / "system.yaml", system) if system else folder / "none.yaml"
    if user:
        write(folder / "colibri" / "tui.yaml", user)
    return load(flags or {}, {"XDG_CONFIG_HOME": str(folder), **env}, where)


def test_flags_beat_variables_beat_the_users_file_beats_the_systems_file_beats_defaults(folder: Path) -> None:
    layers: dict = {}
    seen = [loaded(folder, **layers)["refresh_s"]]
    for layer in ({"system": "refresh_s: 2"}, {"user": "refresh_s: 3"}, {"COLIBRI_TUI_REFRESH_S": "4"},
                  {"flags": {"refresh_s": "5"}}):  # fmt: skip
        layers |= layer
        found = loaded(folder, **layers)
        seen.append(found["refresh_s"])
        assert not found.problems
    assert seen == [None, 2.0, 3.0, 4.0, 5.0]


def test_the_example_of_the_documentation_is_read(folder: Path) -> None:
    found = loaded(folder, user="""
theme: colibri-safe      # or any Textual theme
ascii: auto              # auto, on, off
mono: auto
mouse: off
refresh_s: auto
idle_exit_min: 60
start_screen: dash
readonly: false
confirm_note: optional
keymap: {app.pause: "f10", nav.3: "3,ctrl+u"}
""")
    assert not found.problems
    assert found["mouse"] is False and found["readonly"] is False and found["ascii"] is None
    assert found.keymap == {"app.pause": "f10", "nav.3": "3,ctrl+u"}
    assert found.origin["mouse"].endswith("tui.yaml line 5")


@pytest.mark.parametrize(
    "text,says",
    [
        ("thme: x\n", "line 1: 'thme' is no setting; did you mean 'theme'?"),
        ("\nmouse: maybe\n", "line 2: mouse is 'maybe'; it should be on or off"),
        ("ascii: 3\n", "ascii is '3'; it should be auto, on or off"),
        ("refresh_s: 0\n", "refresh_s is '0'; it should be auto, or seconds between 0.2 and 60"),
        ("refresh_s: .inf\n", "refresh_s is '.inf'"),
        ("idle_exit_min: -1\n", "idle_exit_min is '-1'; it should be whole minutes, 0 for never"),
        ("start_screen: profile\n", "or chat; did you mean 'profiles'?"),
        ("url: edge-07\n", "url is 'edge-07'; it should be an address such as http://127.0.0.1:8080"),
        ("mouse: on\nmouse: off\n", "line 2: 'mouse' is set twice"),
        ("mouse: [on]\n", "line 1: a list is not used here"),
        ("mouse: {a: b}\n", "line 1: 'mouse' should be one value, not a group"),
        ("mouse: &a on\n", "line 1: anchors and tags are not used here"),
        ("mouse: !!bool on\n", "line 1: anchors and tags are not used here"),
        ("just words\n", "line 1: this should read 'setting: value'"),
        ("a: b: c\n", "line 1: mapping values are not allowed here"),
        ("mouse: 'on\n", "line 2:"),
        ("[" * 5000, "line 1: a list is not used here"),
    ],
)
def test_a_wrong_file_says_where_and_what_was_expected_and_the_rest_holds(folder: Path, text: str, says: str) -> None:
    found = loaded(folder, user=text, system="mouse: on\ntheme: nord")
    assert len(found.problems) == 1 and says in found.problems[0], found.problems
    assert str(folder) in found.problems[0]
    assert found["theme"] == "nord", "the layer below still holds"


def test_a_file_that_is_none_is_told_too(folder: Path) -> None:
    path = write(folder / "colibri" / "tui.yaml", "")
    path.write_bytes(b"theme: \xff\xfe")
    assert "is not UTF-8" in loaded(folder).problems[0]
    path.write_bytes(b"a" * 70_000)
    assert "larger than 65536 bytes" in loaded(folder).problems[0]
    path.unlink()
    path.mkdir()
    assert "cannot be read (Is a directory)" in loaded(folder).problems[0]


def test_an_empty_file_is_no_fault(folder: Path) -> None:
    for text in ("\n", "# nothing yet\n", "keymap: {}\n", "---\n"):
        assert loaded(folder, user=text).problems == ()


def test_variables_are_checked_like_files(folder: Path) -> None:
    found = loaded(folder, COLIBRI_TUI_MOSE="on", COLIBRI_TUI_MONO="x", COLIBRI_TUI_CONTAINER="c",
                   COLIBRI_URL="http://a:1")  # fmt: skip
    assert found.problems == ("COLIBRI_TUI_MOSE is no setting; did you mean 'COLIBRI_TUI_MOUSE'?",
                              "COLIBRI_TUI_MONO: mono is 'x'; it should be auto, on or off")  # fmt: skip
    assert (found["url"], found.origin["url"]) == ("http://a:1", "COLIBRI_URL")
    both = loaded(folder, COLIBRI_URL="http://a:1", COLIBRI_TUI_URL="http://b:2")
    assert (both["url"], both.origin["url"]) == ("http://b:2", "COLIBRI_TUI_URL")


def test_every_default_is_a_value_its_own_reader_takes() -> None:
    assert Config().values == {name: option.read(option.default) for name, option in OPTIONS.items()}
    assert config.user_file({"XDG_CONFIG_HOME": "/x"}) == Path("/x/colibri/tui.yaml")


def test_a_keymap_is_spelt_and_checked() -> None:
    good, wrong = checked({"app.pause": "f10", "app.help": "?", "nav.3": "3,ctrl+u"})
    assert not wrong
    assert good == {"app.pause": "f10", "app.help": "question_mark", "nav.3": "3,ctrl+u"}


@pytest.mark.parametrize(
    "id,keys,says",
    [
        ("app.paus", "x", "there is no 'app.paus'; did you mean 'app.pause'?"),
        ("app.pause", "", "it should be keys such as"),
        ("app.pause", "alt+x", "it should be keys such as"),
        ("app.pause", "a b", "it should be keys such as"),
        ("app.pause", "q", "'q' of app.pause is the key of app.quit already"),
        ("prof.edit", "s", "'s' of prof.edit is the key of app.swap already"),
        ("prof.edit", "d", "'d' of prof.edit is the key of prof.diff already"),
    ],
)
def test_a_keymap_that_cannot_hold_is_told(id: str, keys: str, says: str) -> None:
    good, wrong = checked({id: keys})
    assert good == {} and len(wrong) == 1 and says in wrong[0]


def test_two_families_may_share_a_key_since_they_are_never_on_one_screen() -> None:
    good, wrong = checked({"prof.edit": "f", "logs.level": "e"})
    assert good == {"prof.edit": "f", "logs.level": "e"} and not wrong


def test_the_tables_own_keys_do_not_clash_within_a_family() -> None:
    seen: dict[tuple[str, str], str] = {}
    for id, keys in KEYS.items():
        for key in keys.split(","):
            other = seen.setdefault((id.split(".")[0].replace("nav", "app"), key), id)
            assert other == id, f"{other} and {id} are both on {key}"
