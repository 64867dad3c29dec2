"""Keys: made once, closed to others, compared whole, refused in words when the file is spoilt."""

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from appliance.key_lines import Key, digest, line_of
from appliance.keys import MAX_FILE_BYTES, change, open_keys, read_keys
from engine.errors import UsageError


def secrets(folder: Path) -> dict[str, str]:
    lines = [line.split() for line in (folder / "keys").read_text().splitlines() if not line.startswith("#")]
    return {words[0]: words[1] for words in lines}


def test_the_first_start_makes_one_key_of_each_role_for_the_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "data"
    ring, made = open_keys(folder)
    assert made
    assert len(ring) == 2
    assert stat.S_IMODE((folder / "keys").stat().st_mode) == 0o600
    given = secrets(folder)
    admin, user = ring.find(given["admin"]), ring.find(given["user"])
    assert admin is not None
    assert admin.may("admin")
    assert admin.may("user")
    assert user is not None
    assert user.may("user")
    assert not user.may("admin")
    assert [p.name for p in folder.iterdir()] == ["keys"]


def test_the_second_start_reads_what_the_first_wrote(tmp_path: Path) -> None:
    open_keys(tmp_path)
    given = secrets(tmp_path)
    ring, made = open_keys(tmp_path)
    assert not made
    assert ring.find(given["user"]) is not None
    assert secrets(tmp_path) == given


@pytest.mark.parametrize("wrong", ["", "nope", "kéy", "\udc80\udcff", "ck-user-", "x" * 100_000])
def test_a_wrong_key_of_any_kind_is_nobody_s(tmp_path: Path, wrong: str) -> None:
    ring, _ = open_keys(tmp_path)
    assert ring.find(wrong) is None


def test_keys_of_the_settings_are_user_keys(tmp_path: Path) -> None:
    more = tmp_path / "more"
    more.write_text("# from the vault\nthird-secret\n\nfourth secret with blanks\n")
    ring, _ = open_keys(tmp_path / "data", api_key="first, second", api_key_file=more)
    for secret in ("first", "second", "third-secret", "fourth secret with blanks"):
        key = ring.find(secret)
        assert key is not None, secret
        assert not key.may("admin")


def test_a_key_ring_holds_no_secret_that_a_log_could_print(tmp_path: Path) -> None:
    ring, _ = open_keys(tmp_path, api_key="sesame-street")
    assert "sesame" not in repr(vars(ring))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("user\nadmin b\n", "line 1"),
        ("user a\nroot b\n", "line 2"),
        ("user a b c\nadmin d\n", "line 1"),
        ("user a\n", "no admin key"),
        ("", "no user key"),
        ("x" * (MAX_FILE_BYTES + 1), "larger"),
    ],
)
def test_a_spoilt_file_is_refused_in_words_without_its_secrets(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "keys").write_text(text)
    with pytest.raises(UsageError, match=words):
        open_keys(tmp_path)


def test_a_folder_that_cannot_be_written_names_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="--data-dir"):
        open_keys(tmp_path / "file" / "data")


def test_an_empty_setting_is_an_error_not_an_open_door(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="empty"):
        open_keys(tmp_path, api_key=" , ")
    (tmp_path / "none").write_text("# nothing\n")
    with pytest.raises(UsageError, match="no key"):
        open_keys(tmp_path, api_key_file=tmp_path / "none")


def written(folder: Path, *more: str) -> Path:
    path = folder / "keys"
    path.write_text("# mine\nuser first\nadmin second\n" + "".join(f"{line}\n" for line in more))
    return path


def test_a_change_keeps_comments_mode_and_what_else_stands_there(tmp_path: Path) -> None:
    open_keys(tmp_path)
    path = tmp_path / "keys"
    before = path.read_text()
    line = line_of(Key("editor", "user", digest("third"), rate=60))
    change(path, line=line)
    assert path.read_text() == f"{before}{line}\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "third" not in path.read_text()
    change(path, without="editor")
    assert path.read_text() == before
    assert [p.name for p in tmp_path.iterdir()] == ["keys"]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"line": "user x editor"}, "another name"),
        ({"without": "nobody"}, "its keys are user, admin, editor"),
        ({"without": "admin"}, "no admin key"),
        ({"without": "twice"}, "2 keys"),
    ],
)
def test_a_change_that_would_spoil_the_file_leaves_it(tmp_path: Path, asked: dict[str, str], words: str) -> None:
    more = ["user third twice", "user fourth twice"] if asked == {"without": "twice"} else []
    path = written(tmp_path, "user fifth editor", *more)
    before = path.read_text()
    with pytest.raises(UsageError, match=words):
        change(path, **asked)
    assert path.read_text() == before


def test_those_who_change_the_file_at_once_lose_nothing(tmp_path: Path) -> None:
    path = written(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: change(path, line=f"user secret{i} key{i}"), range(24)))
    assert {key.name for key in read_keys(path)} == {"user", "admin", *(f"key{i}" for i in range(24))}


def test_keys_without_a_name_are_told_apart(tmp_path: Path) -> None:
    names = [key.name for key in read_keys(written(tmp_path, "user third", "user fourth"))]
    assert len(set(names)) == 4
    assert names[:2] == ["user", "admin"]


def test_a_running_ring_learns_of_added_and_revoked_keys_and_keeps_the_settings_own(tmp_path: Path) -> None:
    path = written(tmp_path, "user third editor rate=1")
    ring, _ = open_keys(tmp_path, api_key="given")
    inner = ring.internal("batch")
    assert ring.changed() is None
    editor = ring.find("third")
    assert editor is not None
    first, second = ring.take(editor), ring.take(editor)
    assert first is not None and second is not None
    assert (first.retry_s, second.retry_s > 0) == (0, True)
    change(path, without="editor")
    change(path, line="user fourth reader")
    found = ring.changed()
    assert found is not None
    ring.replace(found)
    assert ring.find("third") is None
    for secret in ("first", "second", "fourth", "given", inner):
        assert ring.find(secret) is not None, secret
    path.write_text("nonsense\n")
    with pytest.raises(UsageError, match="line 1"):
        ring.changed()
    assert ring.changed() is None  # said once
    assert ring.find("fourth") is not None
