"""`colibri config explain`: every value with source, reason and reader. Not here: the layers (test_settings)."""

import json

import pytest

from appliance.cli.main import main
from appliance.settings import PROCESS_ENV, Settings


def explained(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, dict[str, dict[str, object]]]:
    assert main(["config", "explain", "--json", *words]) == 0
    found: dict[str, dict[str, dict[str, object]]] = json.loads(capsys.readouterr().out)
    return found


def test_every_setting_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    found = explained(capsys)
    assert set(found["settings"]) == set(Settings.model_fields) and set(found["environment"]) == set(PROCESS_ENV)
    assert all(set(row) == {"value", "source", "reason", "read_by", "kind"} for row in found["settings"].values())


def test_sources_are_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLIBRI_PORT", "9000")
    rows = explained(capsys, "--profile", "long-doc", "-t", "3")["settings"]
    assert (rows["port"]["value"], rows["port"]["source"]) == (9000, "env COLIBRI_PORT")
    assert (rows["threads"]["value"], rows["threads"]["source"]) == (3, "flag --threads")
    assert (rows["cache_type_k"]["value"], rows["cache_type_k"]["source"]) == ("q8_0", "profile long-doc")


def test_threads_left_to_the_machine_are_a_number_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    row = explained(capsys)["settings"]["threads"]
    assert isinstance(row["value"], int) and ("cores" in str(row["reason"]) or "quota" in str(row["reason"]))


def test_a_key_is_never_shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLIBRI_API_KEY", "hunter2hunter2")
    assert explained(capsys)["settings"]["api_key"]["value"] == "(hidden)"
    assert main(["config", "explain"]) == 0
    assert "hunter2" not in capsys.readouterr().out


def test_an_unread_variable_is_exit_2_with_the_nearest_name(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLIBRI_THREAD", "2")
    assert main(["config", "explain"]) == 2
    assert "COLIBRI_THREAD is set, but nothing reads it; did you mean 'COLIBRI_THREADS'?" in capsys.readouterr().err


def test_the_table_has_a_line_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "explain"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + len(Settings.model_fields) + len(PROCESS_ENV) and lines[0].startswith("SETTING")
