"""Settings: layers, provenance, and that every knob is read somewhere. Not here: YAML, flags."""

import ast
from pathlib import Path

import pytest

from appliance.settings import PROCESS_ENV, Settings, about, resolve, user_data_dir
from engine.errors import BadModelFile, UsageError
from scripts.house import MODULES, ROOT, label


def test_each_layer_wins_over_the_one_below() -> None:
    profile = {"name": "p", "ctx_size": 1024, "temp": 0.1, "top_k": 1}
    found = resolve({"ctx_size": "4096"}, {"COLIBRI_CTX_SIZE": "2048", "COLIBRI_TEMP": "0.5"}, profile)
    assert (found.settings.ctx_size, found.settings.temp, found.settings.top_k) == (4096, 0.5, 1)
    sources = {key: found.provenance[key].source for key in ("ctx_size", "temp", "top_k", "top_p")}
    assert sources == {
        "ctx_size": "flag --ctx-size", "temp": "env COLIBRI_TEMP", "top_k": "profile p", "top_p": "default",
    }  # fmt: skip


def test_a_variable_that_nothing_reads_is_an_error_with_the_nearest_name() -> None:
    with pytest.raises(UsageError, match="COLIBRI_CTXSIZE is set, but nothing reads it; did you mean"):
        resolve({}, {"COLIBRI_CTXSIZE": "1"})


def test_a_profile_key_that_nothing_reads_is_an_error_with_the_nearest_name() -> None:
    with pytest.raises(UsageError, match="profile p: nothing reads 'thread'; did you mean 'threads'"):
        resolve({}, {}, {"name": "p", "thread": 2})


def test_variables_of_others_and_those_read_before_settings_are_left_alone() -> None:
    env = dict.fromkeys(PROCESS_ENV, "1") | {"PATH": "/bin", "LLAMA_ARG_PORT": "1"}
    assert resolve({}, env).settings.port == 8080


def test_an_empty_variable_counts_as_unset() -> None:
    found = resolve({}, {"COLIBRI_PORT": "", "COLIBRI_API_KEY": "  "})
    assert found.settings.port == 8080 and found.settings.api_key is None


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"port": "99999"}, "flag --port=99999"),
        ({"threads": "many"}, "flag --threads=many"),
        ({"load_mode": "fast"}, "flag --load-mode=fast"),
        ({"temp": "nan"}, "flag --temp=nan"),
        ({"cache_type_k": "q9"}, "flag --cache-type-k=q9"),
        ({"parallel": "65"}, "flag --parallel=65"),
        ({"cache_mb": "-1"}, "flag --cache-mb=-1"),
        ({"offline": "false"}, "flag --offline=false"),
    ],
)
def test_a_value_out_of_range_names_its_source_and_what_is_expected(flags: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        resolve(flags, {})
    assert words in caught.value.message and "should be" in caught.value.message


def test_a_secret_is_in_no_message_no_repr_and_no_provenance() -> None:
    found = resolve({}, {"COLIBRI_API_KEY": "hunter2hunter2"})
    assert found.settings.api_key == "hunter2hunter2"
    assert "hunter2" not in repr(found)
    assert found.provenance["api_key"].value == "(hidden)"


def test_threads_auto_is_a_number_for_the_engine() -> None:
    spec = resolve({"threads": "auto", "threads_batch": "3"}, {}).settings.engine_spec()
    assert spec["threads"] >= 1 and spec["threads_batch"] == 3


def test_the_engine_gets_every_engine_knob_and_only_names_it_knows() -> None:
    from dataclasses import fields

    from engine.load import EngineOptions

    spec = resolve({"ctx_size": 512, "threads": 1}, {}).settings.engine_spec()
    assert set(spec) <= {field.name for field in fields(EngineOptions)}


def test_samplers_have_the_defaults_and_a_seed_of_minus_one_is_none() -> None:
    from engine.sampling import Sampling

    sampling = resolve({"seed": "-1"}, {}).settings.sampling()
    assert sampling == Sampling() and sampling.seed is None
    assert resolve({"seed": "7", "temp": "0"}, {}).settings.sampling() == Sampling(seed=7, temperature=0.0)


def test_lists_come_with_commas_or_as_lists() -> None:
    assert resolve({"cors_origin": "a, b,"}, {}).settings.cors_origin == ("a", "b")


def test_the_data_folder_follows_the_desktop_rules_unless_named() -> None:
    assert resolve({}, {"XDG_DATA_HOME": "/x"}).settings.data_dir == Path("/x/colibri")
    assert user_data_dir({"HOME": "/h"}).name == "colibri"
    assert resolve({}, {"COLIBRI_DATA_DIR": "/data"}).settings.data_dir == Path("/data")


def test_the_only_model_of_the_folder_is_taken_and_said(tmp_path: Path) -> None:
    (tmp_path / "a.gguf").write_bytes(b"GGUF")
    found = resolve({"models_dir": str(tmp_path)}, {})
    assert found.settings.model_path() == tmp_path / "a.gguf"
    assert "the only model" in found.provenance["model"].reason


def test_two_models_and_no_choice_is_a_question_not_a_guess(tmp_path: Path) -> None:
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).write_bytes(b"GGUF")
    with pytest.raises(UsageError, match=r"2 models \(a.gguf, b.gguf\); choose one with -m"):
        resolve({"models_dir": str(tmp_path)}, {}).settings.model_path()
    assert resolve({"models_dir": str(tmp_path), "model": "b"}, {}).settings.model_path() == tmp_path / "b.gguf"


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("{dir}/no.gguf", "there is no file"),
        ("{dir}/mode.gguf", "did you mean 'model.gguf'"),
        ("{dir}", "is a folder"),
        ("https://example.org/model.gguf", "never downloads"),
        ("/dev/null", "not a regular file"),
    ],
)
def test_a_wrong_model_path_says_what_is_there(tmp_path: Path, model: str, words: str) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    with pytest.raises(BadModelFile, match=words):
        resolve({"model": model.format(dir=tmp_path)}, {}).settings.model_path()


def test_a_name_cannot_climb_out_of_the_models_folder(tmp_path: Path) -> None:
    (tmp_path / "secret.gguf").write_bytes(b"GGUF")
    (tmp_path / "models").mkdir()
    with pytest.raises(BadModelFile):
        resolve({"model": "../secret", "models_dir": str(tmp_path / "models")}, {}).settings.model_path()


def test_every_knob_is_read_by_code() -> None:
    """A knob that nothing reads is a lie to whoever turns it: each field is read off a settings object somewhere."""
    reads: dict[str, set[str]] = {}
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                reads.setdefault(node.attr, set()).add(label(path))
    unread = {key: about(key)["reader"] for key in Settings.model_fields
              if not any(_is_settings_read(key, place) for place in reads.get(key, ()))}  # fmt: skip
    # A word kept for llama-server's command lines: its validation, which refuses False, is its reader.
    assert set(unread) == {"offline"}


def _is_settings_read(key: str, place: str) -> bool:
    """The attribute on a thing called settings (or self, inside Settings) in that file."""
    for node in ast.walk(ast.parse((ROOT / place).read_text())):
        if isinstance(node, ast.Attribute) and node.attr == key:
            owner = node.value
            name = owner.id if isinstance(owner, ast.Name) else owner.attr if isinstance(owner, ast.Attribute) else ""
            if name.lstrip("_") in ("settings", "s") or (name == "self" and place == "appliance/settings.py"):
                return True
    return False


def test_every_reader_exists() -> None:
    readers = {str(about(key)["reader"]) for key in Settings.model_fields} | {r for r, _ in PROCESS_ENV.values()}
    homes = {reader: ROOT / reader.replace(".", "/") for reader in readers}
    assert [r for r, home in homes.items() if not (home.is_dir() or home.with_suffix(".py").is_file())] == []


def test_every_variable_that_code_asks_for_is_known() -> None:
    """The reverse: os.environ is asked for no COLIBRI_ name that `config explain` would call unread."""
    known = set(PROCESS_ENV) | {f"COLIBRI_{key.upper()}" for key in Settings.model_fields} | {"COLIBRI_PROFILE"}
    asked = {}
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("COLIBRI_"):
                word = node.value
                if word.isidentifier() and not word.endswith("_"):
                    asked[word] = label(path)
    assert {name: place for name, place in asked.items() if name not in known} == {}


def test_every_knob_has_a_help_sentence_and_a_kind() -> None:
    for key, field in Settings.model_fields.items():
        assert field.description and 8 <= len(field.description) <= 120, key
        assert about(key)["kind"] in ("engine", "serving", "process"), key
