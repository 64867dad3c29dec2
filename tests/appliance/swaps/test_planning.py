"""The plan document: its keys, its numbers against formulas of their own, every fault as a sentence. Not here: times
(test_estimates.py).
"""

import json
import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from appliance.profiles import Profile
from appliance.settings import Settings, resolve
from appliance.swaps.model_facts import identity
from appliance.swaps.planning import InForce, fit_row, plan_document
from engine.budget import Machine
from engine.gguf.reader import read_gguf
from tests.appliance.nobody import as_nobody, needs_root
from tests.tiny import tiny_llama

GIB = 1 << 30
RESERVE = 512 << 20
PER_POSITION = 2 * 2 * 32 * 2 * 2  # 2 layers x 2 KV heads x 32 values, f16, keys and values
MACHINE = Machine(8 * GIB, None, 2, (0, 1), None)
REQUESTS = {"running": 0, "waiting": 0, "held_limit": 16}
KEYS = {
    "name", "rev", "verdict", "fits", "reason", "weights_bytes", "weights", "kv_bytes", "kv_bytes_per_token",
    "engine_bytes", "total_bytes", "budget_bytes", "budget_reason", "spare_bytes", "cached", "n_ctx", "n_ctx_train",
    "n_layers", "n_kv_heads", "head_dim", "type_k", "type_v", "parallel", "threads", "load_mode", "model", "size",
    "stages", "gap_s", "restart", "changes", "requests", "rollback", "side_effects", "warnings", "errors", "checks",
    "rows",
}  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("plan") / "m.gguf", n_ctx=4096)


def settings_of(model: Path | str, **values: Any) -> Settings:
    return resolve({}, {}, {"model": str(model), "name": "p", **values}).settings


def profile_of(**values: Any) -> Profile:
    return Profile("p", 3, "0" * 16, "", "edited", "name: p\n", values)


def document(
    settings: Settings, machine: Machine = MACHINE, old: Settings | None = None, **facts: Any
) -> dict[str, Any]:
    in_force = InForce("before", 7, old, facts.pop("identity", ())) if old else None
    given = {"freed_bytes": 0, "requests": REQUESTS, "past": [], "overruled": {}, **facts}
    profile = facts.pop("profile", profile_of())
    given.pop("profile", None)
    found = plan_document(profile, settings, machine, in_force=in_force, **given)
    assert set(found) == KEYS
    assert json.loads(json.dumps(found)) == found
    return found


def result(found: dict[str, Any], start: str) -> str:
    return next(str(check["result"]) for check in found["checks"] if check["text"].startswith(start))


def test_the_numbers_are_the_formulas(model: Path) -> None:
    found = document(settings_of(model, ctx_size=1024, threads=2))
    tensors = read_gguf(model).tensors.values()
    assert found["weights_bytes"] == sum(t.n_bytes for t in tensors) == sum(found["weights"].values())
    assert (found["kv_bytes"], found["kv_bytes_per_token"]) == (1024 * PER_POSITION, PER_POSITION)
    assert found["total_bytes"] == found["weights_bytes"] + found["kv_bytes"] + found["engine_bytes"]
    assert found["engine_bytes"] == RESERVE and found["size"] == model.stat().st_size
    assert found["spare_bytes"] == 8 * GIB - found["total_bytes"] == found["budget_bytes"] - found["total_bytes"]
    assert (found["verdict"], found["fits"], found["errors"], found["warnings"]) == ("OK", True, [], [])
    assert (found["n_ctx"], found["n_ctx_train"], found["n_layers"], found["n_kv_heads"]) == (1024, 4096, 2, 2)
    assert (found["name"], found["rev"], found["model"], found["load_mode"]) == ("p", 3, "m.gguf", "resident")
    assert {check["result"] for check in found["checks"]} == {"ok"}
    assert sum(row["value"] for row in found["rows"] if row["name"] == "total_bytes") == found["total_bytes"]


def truncated(path: Path, model: Path) -> Path:
    path.write_bytes(model.read_bytes()[:-1000])
    return path


def test_each_fault_of_a_file_is_one_sentence_and_no_exception(model: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.gguf"
    page.write_text("<!DOCTYPE html><html>not found</html>")
    (tmp_path / "folder").mkdir()
    cut = truncated(tmp_path / "cut.gguf", model)
    other = tiny_llama(tmp_path / "other.gguf", **{"general.architecture": "mamba"})  # type: ignore[arg-type]
    narrow = tiny_llama(tmp_path / "narrow.gguf", n_embd=64, n_heads=4)
    for settings, words in [
        (settings_of(tmp_path / "absent.gguf"), "there is no file"),
        (settings_of(tmp_path / "folder"), "is a folder"),
        (settings_of("x" * 5000), "file name too long"),
        (settings_of("~nobody-of-that-name/m.gguf"), "cannot be looked at"),
        (settings_of(cut), "download it again"),
        (settings_of(page), "HTML"),
        (settings_of(other), "mamba"),
        (settings_of(narrow, cache_type_k="q8_0"), "multiple of 32"),
    ]:
        found = document(settings, old=settings_of(model))
        assert (found["verdict"], found["fits"], len(found["errors"])) == ("BAD", False, 1)
        assert words in found["errors"][0] == found["reason"] and "\n" not in found["reason"]
        assert "fail" in {check["result"] for check in found["checks"]}
        assert found["weights_bytes"] is None and found["n_ctx"] is None and found["gap_s"] == 0.0
        assert found["rollback"]["name"] == "before"


@needs_root
def test_a_file_that_may_not_be_read_fails_the_first_check(model: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        path = Path(folder, "shut.gguf")
        path.write_bytes(model.read_bytes())
        path.chmod(0o600)
        settings = settings_of(path)
        seen = as_nobody(lambda: next((c["result"], c["detail"]) for c in document(settings)["checks"]))
        assert seen == f"('fail', '{path} cannot be read by this user')"
        errors = as_nobody(lambda: document(settings)["errors"])
        assert errors == "[\"'shut.gguf': cannot be read (permission denied)\"]"


def test_the_checks_name_what_is_wrong_where_it_is_wrong(model: Path, tmp_path: Path) -> None:
    assert result(document(settings_of(tmp_path / "absent.gguf")), "model file present") == "fail"
    cut = document(settings_of(truncated(tmp_path / "cut.gguf", model)))
    assert (result(cut, "model file present"), result(cut, "GGUF header")) == ("ok", "fail")
    narrow = document(settings_of(tiny_llama(tmp_path / "n.gguf", n_embd=64, n_heads=4), cache_type_v="q8_0"))
    assert (result(narrow, "GGUF header"), result(narrow, "KV types")) == ("ok", "fail")
    long = document(settings_of(model, ctx_size=4097, threads=3))
    assert (result(long, "ctx 4352"), result(long, "threads 3"), result(long, "RAM")) == ("warn", "warn", "ok")
    assert len(long["warnings"]) == 2 and long["fits"]
    assert result(document(settings_of(model, ctx_size=4000)), "ctx 4096") == "ok"


def test_memory_decides_with_what_the_stopping_worker_gives_back(model: Path) -> None:
    settings = settings_of(model, ctx_size=1024, load_mode="mmap")
    least = 1024 * PER_POSITION + RESERVE
    small = replace(MACHINE, memory_available=least - 100)
    refused = document(settings, small, freed_bytes=99)
    assert (refused["verdict"], refused["fits"], result(refused, "RAM")) == ("NO", False, "fail")
    assert "--load-mode stream would fit" in refused["errors"][0] and refused["kv_bytes"] == 1024 * PER_POSITION
    paging = document(settings, small, freed_bytes=100)
    assert (paging["verdict"], paging["fits"], result(paging, "RAM")) == ("PAGES", True, "warn")
    assert "read from disk" in paging["warnings"][0] and paging["load_mode"] == "mmap"
    tight = document(settings, replace(MACHINE, memory_available=paging["total_bytes"]))
    assert (tight["verdict"], tight["spare_bytes"], result(tight, "RAM")) == ("TIGHT", 0, "warn")
    assert len(tight["warnings"]) == 1
    streamed = document(settings_of(model, ctx_size=1024), small, freed_bytes=99)
    assert (streamed["fits"], streamed["load_mode"]) == (True, "stream")


def test_changes_tell_the_bytes_and_whether_the_worker_stays(model: Path) -> None:
    old = settings_of(model, ctx_size=1024)
    found = document(settings_of(model, ctx_size=4096, temp=0.1), old=old)
    changed = {change["key"]: change for change in found["changes"]}
    assert set(changed) == {"ctx_size", "temp"}
    assert [changed["ctx_size"][key] for key in ("from", "to", "kind")] == [1024, 4096, "engine"]
    assert "KV 0 MiB -> 2 MiB" in changed["ctx_size"]["effect"] and changed["temp"]["kind"] == "serving"
    assert found["restart"] and found["gap_s"] > 0
    serving = document(settings_of(model, ctx_size=1024, temp=0.1), old=old)
    assert not serving["restart"] and serving["gap_s"] == 0.0 and serving["side_effects"] == []
    assert [stage["name"] for stage in serving["stages"]] == ["drain", "stop", "start", "warm", "check"]
    assert {stage["estimate_s"] for stage in serving["stages"]} == {0.0}


def test_a_file_that_was_replaced_needs_a_new_worker(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(model.read_bytes())
    settings, loaded = settings_of(path), identity(path)
    assert not document(settings, old=settings, identity=loaded)["restart"]
    os.utime(path, (1, 1))
    assert document(settings, old=settings, identity=loaded)["restart"]


def test_side_effects_are_what_clients_will_notice(model: Path) -> None:
    old = settings_of(model, ctx_size=4096, alias="chat", aliases="gpt-4,small")
    busy = {"running": 1, "waiting": 2, "held_limit": 4}
    found = document(settings_of(model, ctx_size=512, alias="tags", aliases="small"), old=old, requests=busy)
    words = "; ".join(found["side_effects"])
    assert "1 running answer is finished first" in words and "2 waiting requests are held, not lost" in words
    assert "429 with Retry-After once 4 requests are held" in words
    assert "'chat', 'gpt-4' get 404; 'small', 'tags' will be known" in words
    assert "held prompts of over 512 tokens get 400" in words
    assert found["requests"] == busy
    harsh = document(settings_of(model), old=settings_of(model, ctx_size=256, drain_policy="cancel"), requests=busy)
    assert "ended with an error after 60 s" in harsh["side_effects"][0]


def test_the_way_back_is_named_even_when_it_is_closed(model: Path, tmp_path: Path) -> None:
    open_ = document(settings_of(model, ctx_size=512), old=settings_of(model))
    assert (open_["rollback"]["name"], open_["rollback"]["rev"]) == ("before", 7)
    assert " s; if that fails too, 'fallback'" in open_["rollback"]["text"]
    closed = document(settings_of(model), old=settings_of(tmp_path / "gone.gguf"))
    assert "can be used no more" in closed["rollback"]["text"]
    assert document(settings_of(model))["rollback"]["name"] == "fallback"


def test_what_the_environment_overrules_is_named(model: Path) -> None:
    settings = settings_of(model, ctx_size=512)
    profile = profile_of(ctx_size=4096, temp=settings.temp)
    overruled = {"ctx_size": "env COLIBRI_CTX_SIZE", "temp": "flag --temp"}
    found = document(settings, profile=profile, overruled=overruled)
    assert result(found, "every key") == "warn"
    assert found["warnings"] == ["the profile does not decide everything: ctx_size is 512 by env COLIBRI_CTX_SIZE"]


def test_a_row_of_the_list_says_the_same_as_the_document(model: Path, tmp_path: Path) -> None:
    settings = settings_of(model, ctx_size=1024)
    row, whole = fit_row(settings, MACHINE), document(settings)
    assert (row.pop("fit"), row.pop("fit_reason"), row.pop("ctx_size")) == ("OK", whole["reason"], 1024)
    row.pop("cached")
    assert row == {key: whole[key] for key in row} and len(row) == 11
    bad = fit_row(settings_of(tmp_path / "absent.gguf", ctx_size=2048), MACHINE)
    assert (bad["fit"], bad["ctx_size"], bad["model"], bad["total_bytes"]) == ("BAD", 2048, "absent.gguf", None)


def test_a_list_of_fifty_profiles_takes_no_time(tmp_path: Path) -> None:
    models = [tiny_llama(tmp_path / f"{i}.gguf", seed=i) for i in range(9)]
    models.append(truncated(tmp_path / "cut.gguf", models[0]))
    many = [settings_of(models[i % 10], ctx_size=256 * (i + 1)) for i in range(50)]
    rows = [fit_row(settings, MACHINE) for settings in many]
    began = time.process_time()
    again = [fit_row(settings, MACHINE) for settings in many]
    assert time.process_time() - began < 0.2
    assert again == rows and [row["fit"] for row in rows].count("BAD") == 5
