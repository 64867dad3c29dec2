"""`colibri profile` on the disk: list, check, show, history, diff, set, copy, delete. Not here: a running service."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from appliance.profiles import ProfileStore
from appliance.profiles.store import PACKAGED
from tests.appliance.cli.shell import Done, colibri, environment, inside
from tests.tiny import tiny_llama

SHIPPED = ["batch-tag", "fallback", "long-doc", "quick-verify"]


@pytest.fixture(autouse=True)
def _box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One small model, and a data folder that nobody used."""
    (tmp_path / "models").mkdir()
    tiny_llama(tmp_path / "models" / "tiny.gguf")
    monkeypatch.setenv("COLIBRI_MODELS_DIR", str(tmp_path / "models"))
    monkeypatch.setenv("COLIBRI_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("COLIBRI_USER", "ops")


def profile(*words: str, code: int = 0) -> Done:
    done = inside("profile", *words)
    assert done.code == code, done
    return done


def document(*words: str, code: int = 0) -> Any:
    return json.loads(profile(*words, "--json", code=code).out)


def written(tmp_path: Path, name: str, text: str) -> Path:
    path = tmp_path / "data" / "profiles" / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_the_list_tells_of_each_what_it_asks_for_and_whether_it_fits(tmp_path: Path) -> None:
    written(tmp_path, "bad", "name: bad\nctx_sise: 1\nthreads: 010\n")
    written(tmp_path, "gone", "name: gone\nmodel: gone.gguf\n")
    written(tmp_path, "Not A Name", "")
    ProfileStore(tmp_path / "data").save("new", "name: ne", if_match=None, draft=True)
    (tmp_path / "data" / "active.json").write_text('{"name": "long-doc", "rev": 0}')
    done = profile("list")
    rows = {line[2:].split()[0]: line for line in done.out.splitlines()[1:] if line[:2] in ("  ", "* ")}
    assert list(rows) == sorted([*SHIPPED, "bad", "gone", "new"])
    assert rows["long-doc"].startswith("* ") and rows["long-doc"].split()[1:8] == [
        "long-doc", "0", "valid", "tiny.gguf", "16384", "q8_0", "OK",
    ]  # fmt: skip
    assert "2 errors" in rows["bad"] and rows["bad"].endswith(" ?")
    assert rows["new"].split()[2] == "draft" and rows["gone"].endswith(" BAD")
    assert "gone: BAD: there is no file gone.gguf" in done.out
    assert "Not A Name.yaml is not listed" in done.err and str(tmp_path / "data" / "profiles") in done.err
    found = document("list")
    assert found["folder"] == str(tmp_path / "data" / "profiles") and found["last"] == "long-doc"
    by_name = {row["name"]: row for row in found["profiles"]}
    assert by_name["bad"]["state"] == "errors" and by_name["bad"]["n_errors"] == 2
    assert by_name["fallback"]["type_k"] == "q8_0" and by_name["fallback"]["fit"] == "OK"
    assert by_name["long-doc"]["kv_bytes"] > by_name["quick-verify"]["kv_bytes"] > 0


def test_check_writes_one_line_per_problem_and_exits_2(tmp_path: Path) -> None:
    assert profile("check").out == "" and "4 profiles: 0 errors and 0 warnings" in profile("check").err
    path = written(tmp_path, "x", "name: x\nctx_sise: 1\nctx_size: 4_096\nmodel: gone.gguf\n")
    done = profile("check", "x", "long-doc", code=2)
    assert done.out.splitlines() == [
        f"{path}:2:1: error: nothing reads the key 'ctx_sise' (did you mean 'ctx_size'?)",
        f"{path}:3:11: warning: ctx_size is '4_096', taken as 4096; write it without the underscores"
        " (did you mean '4096'?)",
        f"{path}:4:8: error: there is no file gone.gguf nor one of that name in {tmp_path / 'models'}; did you mean"
        " 'tiny.gguf'?",
    ]
    assert "2 profiles: 2 errors and 1 warning" in done.err
    found = document("check", "x", code=2)
    assert (found["n_errors"], found["n_warnings"]) == (2, 1)
    assert found["files"][0]["problems"][0] == {
        "line": 2, "col": 1, "severity": "error", "path": "ctx_sise", "hint": "ctx_size",
        "message": "nothing reads the key 'ctx_sise'",
    }  # fmt: skip
    assert profile("check", code=2).out == done.out, "all of them, the bad one among them"


def test_check_takes_files_from_anywhere(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("name: mine\nfallback: other\n")
    assert f"{path}:2:11: error: fallback: there is no profile 'other'" in profile("check", str(path), code=2).out
    (tmp_path / "other.yaml").write_text("name: other\nmodel: tiny\n")
    assert profile("check", str(path), str(tmp_path / "other.yaml")).out == ""
    assert "cannot be read: No such file" in profile("check", "nowhere/x.yaml", code=2).err
    assert "cannot be read: Is a directory" in profile("check", f"{tmp_path}/", code=2).err
    assert "did you mean 'long-doc'?" in profile("check", "longdoc", code=2).err


def test_a_terminal_s_own_signs_in_a_file_do_not_reach_the_terminal(tmp_path: Path) -> None:
    written(tmp_path, "x", 'name: x\n"\\e[31mred": 1\n')
    assert "\x1b" not in profile("check", "x", code=2).out


def test_neither_a_pipe_nor_a_terminal_s_own_signs_in_a_name_do_harm(tmp_path: Path) -> None:
    folder = tmp_path / "profiles"
    folder.mkdir()
    os.mkfifo(folder / "pipe.yaml")
    for name in ("pipe", "a\x1b[31mb"):
        done = colibri("profile", "check", name, "--data-dir", str(tmp_path), timeout=30)
        assert done.code == 2 and "\x1b" not in done.err and done.err.count("\n") == 1, done.err


def test_show_gives_the_text_byte_for_byte() -> None:
    assert profile("show", "long-doc").out == (PACKAGED / "long-doc.yaml").read_text()
    found = document("show", "long-doc@0")
    assert (found["rev"], found["source"], found["problems"]) == (0, "packaged", [])
    assert found["values"]["ctx_size"] == 16384 and found["text"] == (PACKAGED / "long-doc.yaml").read_text()
    assert "has no revision 3; there are: 0" in profile("show", "long-doc@3", code=2).err
    assert "should read NAME@REV" in profile("show", "long-doc@x", code=2).err


def test_set_changes_one_line_and_keeps_the_version_before() -> None:
    done = profile("set", "long-doc", "ctx_size=8192", "sampling.temp=0.1", "alias=no", "--note", "shorter letters")
    assert done.out == "long-doc rev 1 saved\n" and "colibri profile apply long-doc" in done.err
    before = (PACKAGED / "long-doc.yaml").read_text().splitlines()
    after = profile("show", "long-doc").out.splitlines()
    changed = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
    assert changed == [("#alias: assistant", 'alias: "no"'), ("ctx_size: 16384", "ctx_size: 8192"),
                       ("  temp: 0.2", "  temp: 0.1")]  # fmt: skip
    (first, shipped) = document("history", "long-doc")["history"]
    assert (first["rev"], first["by"], first["note"], shipped["rev"]) == (1, "ops", "shorter letters", 0)
    table = profile("history", "long-doc").out.splitlines()
    assert table[1].split()[0] == "1" and table[1].endswith("shorter letters") and table[2].endswith("as shipped")
    made = document("set", "long-doc", "ctx_size=", "alias=")
    assert made["rev"] == 2 and "ctx_size" not in made["values"]
    assert "nothing was saved" in profile("set", "long-doc", "alias=").out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["ctx_size"], "'ctx_size' should read KEY=VALUE"),
        (["ctx=1"], "there is no key 'ctx' in a profile; did you mean 'ctx_size'?"),
        (["queue.temp=1"], "there is no key 'queue.temp' in a profile; did you mean 'sampling.temp'?"),
        (["port=1"], "there is no key 'port' in a profile"),
        (["temp=x"], "sampling.temp is 'x': a number from 0 to 100 is expected"),
        (["threads=010"], "threads is '010': with a zero in front"),
        (["ctx_size=-1"], "ctx_size is -1: a whole number from 0 to"),
        (["cache_type_k=Q8_0"], "f32, f16, bf16, q8_0 or q4_0 is expected; did you mean 'q8_0'?"),
        (["fallback=nobody"], "there is no profile 'nobody'"),
    ],
)
def test_a_wrong_change_is_one_sentence_and_changes_nothing(words: list[str], sentence: str) -> None:
    assert sentence in profile("set", "long-doc", *words, code=2).err
    assert document("show", "long-doc")["rev"] == 0


def test_diff_tells_the_lines_and_what_they_do() -> None:
    done = profile("diff", "quick-verify", "long-doc")
    assert "--- quick-verify rev 0" in done.out and "-ctx_size: 2048" in done.out and "+ctx_size: 16384" in done.out
    assert "the worker is started anew; OK: " in done.out and "trained on" in done.err
    found = document("diff", "quick-verify", "long-doc")
    by_key = {change["key"]: change for change in found["changes"]}
    assert (by_key["ctx_size"]["from"], by_key["ctx_size"]["to"], by_key["ctx_size"]["kind"]) == (2048, 16384, "engine")
    assert by_key["ctx_size"]["effect"].startswith("KV ") and found["restart"] is True and found["verdict"] == "OK"
    profile("set", "long-doc", "temp=0.5")
    found = document("diff", "long-doc")
    assert (found["from"], found["to"]) == ({"name": "long-doc", "rev": 0}, {"name": "long-doc", "rev": 1})
    assert [change["key"] for change in found["changes"]] == ["temp"] and found["restart"] is False
    assert [line for line in found["text"] if line[0] in "+-" and line[:3] not in ("+++", "---")] == [
        "-  temp: 0.2", "+  temp: 0.5",
    ]  # fmt: skip
    assert "nothing is stopped" in profile("diff", "long-doc@0", "long-doc@1").out


def test_diff_of_a_wrong_file_still_shows_the_lines(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("name: x\nctx_sise: 1\n")
    done = profile("diff", "long-doc", str(path))
    assert "+ctx_sise: 1" in done.out and "is not known while one of them is wrong" in done.out
    assert f"{path} line 2: nothing reads the key 'ctx_sise'" in done.err
    assert document("diff", str(path), "long-doc")["changes"] is None
    assert "the texts are equal" in profile("diff", "long-doc", "long-doc").out
    assert "has no version before 0" in profile("diff", "long-doc", code=2).err
    assert "is compared with what?" in profile("diff", str(path), code=2).err


def test_copy_makes_a_new_one_or_brings_a_version_back() -> None:
    assert profile("copy", "long-doc", "mine").out == "mine rev 1 saved\n"
    assert document("show", "mine")["text"] == (PACKAGED / "long-doc.yaml").read_text().replace(
        "name: long-doc\n", "name: mine\n")  # fmt: skip
    profile("set", "mine", "ctx_size=512")
    assert profile("copy", "mine@1", "mine").out == "mine rev 3 saved\n"
    assert document("show", "mine")["values"]["ctx_size"] == 16384
    assert "a profile 'mine' already; delete it first" in profile("copy", "long-doc", "mine", code=2).err
    assert "name a version of it to bring back" in profile("copy", "mine", "mine", code=2).err
    assert "is no profile name" in profile("copy", "mine", "../mine", code=2).err


def test_delete_takes_the_edit_away_and_nothing_else() -> None:
    profile("set", "long-doc", "ctx_size=512")
    profile("copy", "long-doc", "mine")
    assert profile("delete", "long-doc").out == "long-doc is as shipped again\n"
    assert document("delete", "mine") == {"name": "mine", "deleted": True, "rev": None}
    assert "as shipped; there is no edit" in profile("delete", "long-doc", code=1).err
    assert "cannot be deleted" in profile("delete", "fallback", code=1).err
    assert profile("copy", "mine@1", "mine").out == "mine rev 2 saved\n", "its history was kept"


def test_a_mistyped_action_or_option_gets_the_nearest_one() -> None:
    assert "there is no action 'lst' among list, check" in profile("lst", code=2).err
    assert "did you mean 'list'?" in profile("lst", code=2).err
    assert "there is no option '--jsn'; did you mean '--json'?" in profile("list", "--jsn", code=2).err
    assert "required: ACTION" in profile(code=2).err


def test_the_list_costs_no_numba_and_no_http_server() -> None:
    program = (
        "import sys; from appliance.cli.main import main; assert main(['profile', 'list']) == 0; "
        "assert not {'numba', 'aiohttp', 'numpy', 'textual'} & set(sys.modules), sorted(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment())
    assert done.returncode == 0, done.stderr
    assert colibri("profile", "--help").out.count("\n") > 20
