"""`colibri keys`: a key is shown once, listed without its secret, gone when revoked; wrong words leave the file."""

import json
from pathlib import Path

import pytest

from appliance.cli.main import main
from appliance.keys import open_keys


def run(capsys: pytest.CaptureFixture[str], folder: Path, *words: str) -> tuple[int, str, str]:
    code = main(["keys", *words, "--data-dir", str(folder)])
    out, err = capsys.readouterr()
    return code, out, err


def test_an_added_key_works_and_only_its_digest_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("add", "night", "--lane", "batch", "--rate", "90", "--profiles", "a,b", "--models", "m/x:q4")
    code, out, err = run(capsys, tmp_path, *words)
    assert (code, len(out.splitlines())) == (0, 1)
    secret = out.strip()
    assert secret.startswith("ck-user-") and secret not in err
    text = (tmp_path / "keys").read_text()
    assert secret not in text
    assert "user ck-user-" in text and "admin ck-admin-" in text  # the first start's own, for the command line
    key = open_keys(tmp_path)[0].find(secret)
    assert key is not None
    assert (key.name, key.lane, key.rate, key.profiles, key.models) == ("night", "batch", 90, ("a", "b"), ("m/x:q4",))


def test_the_list_has_all_but_the_secrets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, made, _ = run(capsys, tmp_path, "add", "prometheus", "--role", "metrics", "--json")
    fields = {"name": "prometheus", "role": "metrics", "lane": "interactive", "rate": None, "models": [],
              "profiles": []}  # fmt: skip
    secret = json.loads(made).pop("key")
    assert json.loads(made) == {**fields, "key": secret}
    code, out, _ = run(capsys, tmp_path, "list", "--json")
    listed = json.loads(out)["keys"]
    assert code == 0 and [key["name"] for key in listed] == ["user", "admin", "prometheus"] and listed[2] == fields
    _, table, _ = run(capsys, tmp_path, "list")
    assert len(table.splitlines()) == 3 and "metrics, lane interactive, no rate" in table
    assert "ck-" not in out + table and "sha256" not in out + table


def test_a_revoked_key_is_gone_and_the_last_admin_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, secret, _ = run(capsys, tmp_path, "add", "editor")
    assert run(capsys, tmp_path, "revoke", "editor")[0] == 0
    assert open_keys(tmp_path)[0].find(secret.strip()) is None
    code, _, err = run(capsys, tmp_path, "revoke", "admin")
    assert code == 2 and "no admin key" in err
    code, _, err = run(capsys, tmp_path, "revoke", "editor")
    assert code == 2 and "its keys are user, admin" in err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("add", "a b"), "no name of a key"),
        (("add", "rate=5"), "no name of a key"),
        (("add", "x", "--rate", "0"), "1 to 10000"),
        (("add", "x", "--lane", "fast"), "lane=batch"),
        (("add", "x", "--role", "root"), "no --role 'root'"),
        (("add", "x", "--models", ","), "names with commas"),
        (("add", "x", "--profiles", "a b"), "names with commas"),
        (("drop", "x"), "no verb 'drop'"),
    ],
)
def test_wrong_words_are_told_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], sentence: str
) -> None:
    open_keys(tmp_path)
    before = (tmp_path / "keys").read_text()
    code, out, err = run(capsys, tmp_path, *words)
    assert (code, out) == (2, "")
    assert sentence in err and len(err.splitlines()) == 1
    assert (tmp_path / "keys").read_text() == before
