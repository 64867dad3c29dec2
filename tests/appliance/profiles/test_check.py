"""What a profile may say: keys in their places, and values that make sense together. Not here: YAML (test_strict)."""

from typing import Any, get_args

import pytest

from appliance.profiles import BadProfile, check
from appliance.profiles.problems import errors
from appliance.profiles.schema import ALSO, GROUPS, KEYS, PLANNED, TOP, default_words, fields, path_of, takes
from appliance.settings import Settings, about, resolve

KNOWN = ("fallback", "long-doc", "x")


def sentences(text: str, name: str = "x") -> list[str]:
    return [p.sentence() for p in check(text, name, KNOWN)[1]]


def line_of(key: str, value: str) -> str:
    """A profile that sets one key, in its place."""
    group, _, _ = path_of(key).rpartition(".")
    return f"name: x\n{group}:\n  {key}: {value}\n" if group else f"name: x\n{key}: {value}\n"


def test_a_knob_is_a_key_exactly_if_it_is_not_the_process_s_own() -> None:
    wanted = {key for key in Settings.model_fields if about(key)["kind"] != "process"}
    assert set(KEYS) == wanted and len(KEYS) == len(wanted)
    assert {key for keys in GROUPS.values() for key in keys} <= set(Settings.model_fields)
    assert not (set(PLANNED) | set(ALSO)) & (set(KEYS) | set(GROUPS))
    assert {hint.rpartition(".")[2] for hint in ALSO.values()} <= {*KEYS, "summary"}


@pytest.mark.parametrize("key", KEYS)
def test_every_key_takes_its_default_and_gives_it_to_the_settings(key: str) -> None:
    default = Settings.model_fields[key].get_default()
    words = default_words(key)
    values, problems = check(line_of(key, "null" if words == "unset" else words), "x", KNOWN)
    assert values is not None and not problems
    assert getattr(resolve({"model": "m"}, {}, values).settings, key) == ("m" if key == "model" else default)


@pytest.mark.parametrize("key", [key for key in KEYS if takes(key).base in ("whole", "number")])
def test_every_limit_is_the_settings_own_and_is_told(key: str) -> None:
    field = Settings.model_fields[key]
    for rule in field.metadata:
        for name, step in (("ge", -1), ("gt", 0), ("le", 1), ("lt", 0)):
            limit = getattr(rule, name, None)
            if limit is None or (takes(key).is_auto and name == "ge"):  # below 1 means auto there
                continue
            (sentence,) = sentences(line_of(key, str(limit + step)))
            assert sentence.startswith(f"{path_of(key)} is ") and takes(key).words in sentence


@pytest.mark.parametrize("key", [key for key in KEYS if takes(key).base == "word"])
def test_every_word_of_a_choice_is_taken_and_all_are_listed_for_another(key: str) -> None:
    choices = get_args(Settings.model_fields[key].annotation)
    assert all(check(line_of(key, choice), "x", KNOWN)[0] == {key: choice} for choice in choices)
    (sentence,) = sentences(line_of(key, "other"))
    assert all(choice in sentence for choice in choices)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("name: x\nport: 1\n", "'port' belongs to the process; set it by flag or environment"),
        ("name: x\ntemp: 1.0\n",
         "nothing reads the key 'temp'; it goes under 'sampling:' (did you mean 'sampling.temp'?)"),
        ("name: x\nqueue:\n  temp: 1.0\n",
         "nothing reads the key 'queue.temp'; it goes under 'sampling:' (did you mean 'sampling.temp'?)"),
        ("name: x\nqueue:\n  ctx_size: 1\n",
         "nothing reads the key 'queue.ctx_size'; it goes at the top, without indentation (did you mean 'ctx_size'?)"),
        ("name: x\nsampling:\n  tmp: 2\n", "nothing reads the key 'sampling.tmp' (did you mean 'sampling.temp'?)"),
        ("name: x\nmax_queu: 2\n", "nothing reads the key 'max_queu' (did you mean 'queue.max_queue'?)"),
        ("name: x\nmax_tokens: 2\n", "nothing reads the key 'max_tokens' (did you mean 'sampling.n_predict'?)"),
        ("name: x\nzzzz: 2\n", "nothing reads the key 'zzzz'"),
        ("name: x\nttl: 600\n",
         "nothing reads 'ttl' yet: a model stays loaded until the next swap; leave the line out"),
        ("name: x\nschedule: night\n", "nothing reads 'schedule' yet: a profile is changed by hand, by 'colibri"
         " profile apply' or by a cron job that calls it, once 'colibri profile rehearse' has shown what its longest"
         " input takes; leave the line out"),
        ("name: x\nsampling: 5\n", "'sampling:' is a group; write its keys on the lines below it"),
        ("name: x\nsampling: []\n", "'sampling:' is a group; write its keys on the lines below it"),
        ("ctx_size: 1\n", "the key 'name' is missing; write 'name: x'"),
        ("name: X Y\n", "name is 'X Y': small letters, digits, '.', '_' and '-' are expected"),
        ("name: long-doc\n", "the name 'long-doc' differs from the file's, x, and there is a profile 'long-doc' already"
         " (did you mean 'x'?)"),
        ("name: y\n", "the name 'y' differs from the file's, x (did you mean 'x'?)"),
        ("name: x\nsummary: " + "s" * 201, "summary has 201 characters; at most 200 characters are expected"),
        ("name: x\nfallback: long-dok\n", "fallback: there is no profile 'long-dok' (did you mean 'long-doc'?)"),
        ("name: x\nfallback: x\n", "fallback is the profile itself; name one that starts when this one does not"
         " (did you mean 'fallback'?)"),
        ("name: x\nbatch_size: 64\nubatch_size: 128\n", "ubatch_size 128 is over batch_size 64, which counts"
         " (did you mean '64'?)"),
        ("name: x\nctx_size: 8\nwarmup:\n  warmup_tokens: 8\n",
         "warmup.warmup_tokens 8 leaves no room in ctx_size 8, which counts"),
        ("name: x\nqueue:\n  timeout: 5\n  queue_timeout: 10\n",
         "queue.queue_timeout is over queue.timeout, which counts for waiting and answering together"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_sentence_with_the_nearest_name(text: str, sentence: str) -> None:
    assert sentences(text) == [sentence]


def test_only_the_fallback_may_be_its_own() -> None:
    assert check("name: fallback\nfallback: fallback\n", "fallback", KNOWN)[0] == {"fallback": "fallback"}


def test_the_values_are_none_exactly_if_there_is_an_error() -> None:
    values, problems = check("name: x\nbatch_size: 64\nubatch_size: 128\n", "x", KNOWN)
    assert values == {"batch_size": 64, "ubatch_size": 128} and not errors(problems) and problems
    assert check("name: x\nctx_size: -1\n", "x", KNOWN)[0] is None


def test_an_editor_learns_of_every_key_what_it_takes_and_has() -> None:
    values, _ = check("name: x\nctx_size: 512\naliases: [a, b]\nsampling:\n  temp: 0\n", "x", KNOWN)
    assert values is not None
    found: dict[str, dict[str, Any]] = fields(values)
    assert list(found) == [path_of(key) for key in (*TOP, *(k for keys in GROUPS.values() for k in keys))]
    assert found["ctx_size"] == {
        "help": Settings.model_fields["ctx_size"].description, "kind": "engine", "default": "0",
        "why": "the trained length, at most 8192", "takes": "a whole number from 0 to 1073741824", "value": 512,
    }  # fmt: skip
    assert found["aliases"]["value"] == ["a", "b"] and found["sampling.temp"]["value"] == 0.0
    assert found["model"]["value"] is None and all(row["help"] for row in found.values())


def test_the_first_problem_is_told_with_its_place_and_the_number_of_further_ones() -> None:
    _, problems = check("name: x\nctx_sise: 4096\nctx_size: -1\n", "x", KNOWN)
    error = BadProfile.of("profile x", problems)
    words = "profile x line 2: nothing reads the key 'ctx_sise' (did you mean 'ctx_size'?) (and 1 more)"
    assert error.message == words
    assert [p["line"] for p in error.extra["problems"]] == [2, 3]  # type: ignore[attr-defined]
