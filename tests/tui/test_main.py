"""The start: flags, the settings printed, what is refused, what is imported. Not here: terminals (tests/terminal)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tui import key_file

ROOT = Path(__file__).resolve().parents[2]


def run(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("COLIBRI_", "TEXTUAL_"))}
    return subprocess.run([sys.executable, "-m", "tui", *args], cwd=ROOT, env={**clean, **env}, capture_output=True,
                          text=True, timeout=30, stdin=subprocess.DEVNULL)  # fmt: skip


def test_config_prints_files_values_and_where_they_came_from(tmp_path) -> None:
    file = tmp_path / "colibri" / "tui.yaml"
    file.parent.mkdir()
    file.write_text("mouse: on\nkeymap: {app.pause: f10}\nthme: x\n")
    done = run("config", "--rate", "5", XDG_CONFIG_HOME=str(tmp_path), COLIBRI_TUI_ASCII="off")
    lines = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines() if line.strip()}
    assert lines[str(file)] == ["read"]
    assert lines["mouse"] == ["on", str(file), "line", "1"] and lines["refresh_s"] == ["5.0", "--refresh-s"]
    assert lines["ascii"] == ["off", "COLIBRI_TUI_ASCII"] and lines["theme"] == ["colibri-safe", "default"]
    assert lines["keymap"] == ["app.pause", "f10"]
    assert done.returncode == 2 and "line 3: 'thme' is no setting; did you mean 'theme'?" in done.stderr


@pytest.mark.parametrize(
    "args,says",
    [
        (["--rate", "never"], "--rate: 'never' should be auto, or seconds between 0.2 and 60"),
        (["--screen", "dsah"], "did you mean 'dash'?"),
        (["--url", "edge"], "--url: 'edge' should be an address such as http://127.0.0.1:8080"),
        (["--colour"], "unrecognized arguments: --colour"),
        (["confg"], "invalid choice: 'confg'"),
    ],
)
def test_a_wrong_flag_is_told_in_one_line_and_ends_with_2(args: list[str], says: str) -> None:
    done = run(*args)
    assert done.returncode == 2 and says in done.stderr and "Traceback" not in done.stderr


def test_what_a_start_imports_and_what_it_leaves_alone() -> None:
    """aiohttp takes a quarter of a second, numba half of one: the first paint waits for neither."""
    code = ("import sys, tui.__main__; from tui.app import ColibriApp; from tui.screens.dash import DashScreen; "
            "print(' '.join(sys.modules))")  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in done.stdout.split()}
    assert "textual" in loaded
    slow = {"numba", "numpy", "llvmlite", "aiohttp", "docker", "engine", "appliance", "pydantic", "tokenizers"}
    assert not loaded & slow


def test_the_admin_key_is_found_in_a_file_of_the_service_a_bare_file_or_the_environment(tmp_path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("# Keys\nuser u-secret\nadmin a-secret ops\n")
    assert key_file.find("", {"COLIBRI_DATA_DIR": str(tmp_path)})[:2] == ("a-secret", str(keys))
    assert key_file.find(str(keys), {"COLIBRI_ADMIN_KEY": "other"}).key == "a-secret"
    assert key_file.find("", {"COLIBRI_ADMIN_KEY": " e-secret\n"})[:2] == ("e-secret", "COLIBRI_ADMIN_KEY")
    bare = tmp_path / "bare"
    bare.write_text("b-secret\n")
    assert key_file.find(str(bare), {}).key == "b-secret"


def test_a_key_file_that_is_of_no_use_is_named(tmp_path) -> None:
    absent = key_file.find(str(tmp_path / "none"), {})
    assert absent.key == "" and absent.fault == f"{tmp_path / 'none'} does not exist"
    users = tmp_path / "users"
    users.write_text("user u-secret\n")
    assert key_file.find(str(users), {}).fault == f"{users} holds no line 'admin SECRET'"
    users.write_bytes(b"\xff\xfe\x00")
    assert "no UTF-8 text" in key_file.find(str(users), {}).fault
    assert "Is a directory" in key_file.find(str(tmp_path), {}).fault
    assert key_file.find("", {"COLIBRI_DATA_DIR": str(tmp_path / "no")}).fault == "", "there may be no key at all"


def test_a_start_that_fails_ends_with_70_and_one_line(tmp_path) -> None:
    """The style sheet is unreadable: the program cannot paint at all."""
    code = ("import sys, tui.app as a; a.ColibriApp.CSS_PATH = '/nonexistent/theme.tcss'; "
            "from tui.client import Client; app = a.ColibriApp(Client('http://127.0.0.1:1')); "
            "code = app.run(headless=True); print('code', code)")  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=30,
                          env={**os.environ, "XDG_STATE_HOME": str(tmp_path), "TERM": "xterm"})  # fmt: skip
    assert "code 70" in done.stdout, done.stderr
    assert "colibri tui could not start:" in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert "Traceback" in next((tmp_path / "colibri").glob("fault-*.txt")).read_text()
