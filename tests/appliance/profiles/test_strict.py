"""YAML's traps and hostile files: each told with its place, quickly and in little memory. Not here: keys (test_check).

The inputs are those that others' issue trackers are full of: tabs, a colon, a key twice, `no` for False, 3.10 for 3.1,
12:30 for 750, 010 for 8, 1e-5 for text, .nan past every range, a Windows mark, Latin-1, an alias bomb, tags that run.
"""

import json
import random
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from appliance.model_files import existing_model
from appliance.profiles.check import Checked, examine
from appliance.profiles.problems import errors
from tests.appliance.cli.shell import environment

KNOWN = ("fallback", "good")
BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{here}: &{here} [{','.join(['*' + before] * 9)}]\n" for before, here in zip("abcdefgh", "bcdefghi", strict=True)
) + "name: *i\n"  # fmt: skip
DEEP = "name: " + "[" * 3000 + "]" * 3000 + "\n"


def judged(text: str | bytes, name: str = "x", models: Path = Path("nowhere")) -> Checked:
    return examine(text, name, KNOWN, partial(existing_model, models_dir=models))


def told(checked: Checked) -> list[tuple[int, str, str]]:
    return [(p.line, p.severity, p.sentence()) for p in checked.problems]


def test_a_right_one_is_taken_without_a_word(tmp_path: Path) -> None:
    (tmp_path / "tiny.gguf").touch()
    checked = judged("name: good\nmodel: tiny.gguf\nctx_size: 128\n", "good", tmp_path)
    assert (checked.values, checked.problems) == ({"model": "tiny.gguf", "ctx_size": 128}, [])


def test_a_mark_and_line_ends_of_windows_are_fine() -> None:
    checked = judged(b"\xef\xbb\xbfname: x\r\nctx_size: 128\r\nsampling:\r\n  temp: 0\r\n")
    assert (checked.values, checked.problems) == ({"ctx_size": 128, "temp": 0.0}, [])


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("name: x\n\tctx_size: 1\n", 2, "a tab indents this line; YAML takes spaces only"),
        ("name: x\nsampling:\n\ttemp: 1\n", 3, "a tab indents this line"),
        ("name: a: b\nctx_size: 1\n", 1, "a second ': ' on one line; put the value in quotes"),
        ("name: x\nctx_size: 128\nctx_size: 4096\n", 3, "the key 'ctx_size' is set twice, first on line 2"),
        ("name: x\nctx_size: 128\nctx_sizee: 4096\n", 3, "'ctx_sizee' (did you mean 'ctx_size'?)"),
        ("name: x\ncontext: 4096\n", 2, "'context' (did you mean 'ctx_size'?)"),
        ("name: x\nthreads: 010\n", 2, "threads is '010': with a zero in front it is an octal number to some"),
        ("name: x\nsampling:\n  temp: .nan\n", 3, "sampling.temp is '.nan': not a number one can count with"),
        ("name: x\nsampling:\n  temp: -.INF\n", 3, "sampling.temp is '-.INF': not a number one can count with"),
        ("name: x\nsampling:\n  temp: 1e999\n", 3, "sampling.temp is '1e999': a number from 0 to 100 is expected"),
        ("name: x\nctx_size: -1\n", 2, "ctx_size is -1: a whole number from 0 to 1073741824 is expected"),
        ("name: x\nctx_size: 99999999999\n", 2, "ctx_size is 99999999999: a whole number from 0 to 1073741824"),
        ("name: x\nctx_size: " + "9" * 5000 + "\n", 2, "99...': a whole number from 0 to"),
        ("name: x\ncache_type_k: q5_0\n", 2, "cache_type_k is 'q5_0': f32, f16, bf16, q8_0 or q4_0 is expected"),
        ("name: x\ncache_type_k: Q8_0\n", 2, "(did you mean 'q8_0'?)"),
        ("name: x\nctx_size: '4096'\n", 2, "ctx_size is '4096': text, as it stands in quotes; write it without"),
        ("name: x\nctx_size: 0x10\n", 2, "ctx_size is '0x10': numbers are decimal here (did you mean '16'?)"),
        ("name: x\nctx_size: 1:30\n", 2, "ctx_size is '1:30': it may mean a time, or 90, or text"),
        ("name: x\nctx_size: 1e3\n", 2, "a whole number from 0 to 1073741824 is expected (did you mean '1000'?)"),
        ("name: x\nctx_size: yes\n", 2, "ctx_size is 'yes': a whole number"),
        ("name: x\nctx_size:\n", 2, "ctx_size has no value; a whole number"),
        ("name: x\nctx_size: [1, 2]\n", 2, "ctx_size holds a list; a whole number"),
        ("name: x\nctx_size: {a: 1}\n", 2, "ctx_size holds keys below it; a whole number"),
        ("name: x\nload_mode: no\n", 2, "load_mode is 'no': auto, resident, mmap, mlock or stream is expected"),
        ("name: x\nmodel: not-there.gguf\n", 2, "there is no file not-there.gguf"),
        ("name: x\nmodel: /\n", 2, "/ is a folder, not a GGUF file"),
        ("", 1, "the file is empty"),
        ("# only words\n", 1, "the file is empty"),
        ("- a\n- b\n", 1, "a profile is a list of 'key: value' lines, this is something else"),
        ("name: x\n---\nname: y\n", 2, "a second document begins here; one file holds one profile"),
        ("name: !!python/object/apply:os.system ['touch pwned']\n", 1, "python/object/apply:os.system is not used"),
        ("name: x\nalias: !x y\n", 2, "the tag !x is not used in profiles"),
        ("name: &a x\nalias: y\n", 1, "anchors and aliases (& and *) are not used"),
        ("name: x\n<<: {ctx_size: 1}\n", 2, "nothing reads the key '<<'"),
        ("name: x\n? [a, b]\n: 1\n", 2, "a key must be a plain word"),
        (BOMB, 1, "anchors and aliases (& and *) are not used"),
        (DEEP, 1, "nested too deeply; a profile has 4 levels at most"),
        (b"name: caf\xe9\n", 1, "byte 0xE9 is not UTF-8 (it is 'é' in Latin-1); save the file as UTF-8"),
        (b"\xff\xfen\x00a\x00", 1, "this is UTF-16; save the file as UTF-8"),
        ("name: x\nalias: a\x00b\n", 2, "the character U+0000 is not allowed"),
        ("name: x\nalias: a\ud800b\n", 2, "the character U+D800 is not allowed"),
        ("name: x\nalias: a\u2028b\n", 2, "the character U+2028 is not allowed"),
        ('name: x\nalias: "\\UFFFFFFFF"\n', 2, "not the YAML of a profile"),
        ("name: 'x\n", 2, "not the YAML of a profile"),
        ("name: x\nalias: @a\n", 2, "a value cannot begin with this character; put the value in quotes"),
        ("name: x\nalias: a\n b: c\n", 3, "a second ': ' on one line"),
        ("# " + "x" * 70_000, 1, "over 65536 bytes"),
    ],
)
def test_what_is_refused_is_told_with_its_line(tmp_path: Path, text: str | bytes, line: int, words: str) -> None:
    checked = judged(text, "x", tmp_path)
    found = [(p.line, p.sentence()) for p in errors(checked.problems)]
    assert any(at == line and words in sentence for at, sentence in found), found
    assert all("\n" not in sentence for _, sentence in found)


def test_the_column_is_that_of_the_value_or_of_the_key() -> None:
    checked = judged("name: x\nsampling:\n  temp: .nan\n  tmp: 1\n")
    assert [(p.line, p.col, p.path) for p in checked.problems] == [(3, 9, "sampling.temp"), (4, 3, "sampling.tmp")]


def test_a_word_is_what_its_key_wants_and_never_false_by_its_looks() -> None:
    checked = judged("name: no\nalias: 3.10\naliases: [yes, on, off, ~, 0x10, 12:30, 1e3, plain]\n", "no")
    assert checked.values == {"alias": "3.10", "aliases": ("yes", "on", "off", "~", "0x10", "12:30", "1e3", "plain")}
    assert checked.name == "no" and checked.is_good
    assert [p.hint for p in checked.problems] == [
        '"no"', '"3.10"', '"yes"', '"on"', '"off"', '"~"', '"0x10"', '"12:30"', '"1e3"',
    ]  # fmt: skip


def test_orders_to_a_terminal_are_no_text_however_they_are_written() -> None:
    """They came through as YAML escapes: a list of profiles would have turned the terminal red."""
    for key, escape in (("summary", "\\e[31m"), ("alias", "\\x00"), ("alias", "\\n"), ("model", "\\ud800"),
                        ("aliases", "\\x9b"), ("alias", "\\u202e"), ("name", "\\r")):  # fmt: skip
        checked = judged(f'{key}: "a{escape}b"\n')
        assert any("holds the character U+" in p.message and p.path == key for p in checked.problems), escape
        assert key not in checked.values and checked.summary == ""
    checked = judged('name: x\n"a\\e[31m": 1\nctx_size: "\\e[31m"\naliases: ["\\e"]\n')
    assert len(checked.problems) == 3 and not any("\x1b" in p.sentence() + p.path for p in checked.problems)
    assert judged('name: x\nwarmup:\n  warmup_prompt: "a\\n\\tb é 😀"\n').values == {"warmup_prompt": "a\n\tb é 😀"}


def test_numbers_that_only_other_readers_mistake_are_taken_and_shown() -> None:
    checked = judged("name: x\nctx_size: 4_096\nsampling:\n  temp: 1e-5\n  top_p: .5\n")
    assert checked.values == {"ctx_size": 4096, "temp": 1e-5, "top_p": 0.5}
    assert told(checked) == [
        (2, "warning", "ctx_size is '4_096', taken as 4096; write it without the underscores (did you mean '4096'?)")
    ]


def test_null_is_as_if_the_line_were_not_there() -> None:
    checked = judged("name: x\nmodel:\nalias: ~\nthreads: null\naliases:\nsampling:\n  seed:\nqueue:\n")
    assert (checked.values, checked.problems) == ({}, [])


def test_all_problems_come_at_once_in_the_order_of_the_file() -> None:
    text = "ctx_sise: 1\nctx_size: -1\nthreads: 010\nport: 1\nsampling:\n  temp: x\n  temp: 2\nttl: 5\nname: y\n"
    checked = judged(text)
    assert [p.line for p in checked.problems] == [1, 2, 3, 4, 6, 7, 8, 9]


def test_what_stands_before_a_fault_is_still_checked() -> None:
    assert [p.line for p in judged("ctx_sise: 1\nthreads: 010\nalias: 'open\n").problems] == [1, 2, 4]


def test_no_text_raises_and_every_problem_is_one_line_inside_it() -> None:
    """200 mutations of a right one; a fault of YAML was once looked for in a line that only PyYAML counts."""
    chance = random.Random(3)
    bits = [*"\t\n\r#'\"[}],\ud800\x85", ": ", "- ", "? ", "&a", "*a", "!x", "|\n ", "---"]
    for _ in range(200):
        text = list("name: x\nctx_size: 1\nsampling:\n  temp: 0.5\nqueue: {max_queue: 1}\naliases:\n- a\n- b\n")
        for _ in range(chance.randint(1, 6)):
            at = chance.randrange(len(text) + 1)
            text[at : at + chance.randint(0, 3)] = chance.choice(bits)
        checked = judged("".join(text))
        n_lines = len(re.split("\r\n|\r|\n", "".join(text)))
        for problem in checked.problems:
            assert 1 <= problem.line <= n_lines and problem.col >= 1, (text, problem)
            assert len(problem.message.splitlines()) == 1 and len(problem.message) <= 300


def test_hostile_files_are_refused_in_a_second_and_a_hundred_megabytes(tmp_path: Path) -> None:
    """64 KiB is all that is read; PyYAML alone takes 1.5 s for the worst of these."""
    hostile = {
        "bomb": BOMB, "deep": DEEP, "brackets": "[" * 65536, "braces": "{" * 65536, "pairs": "a: {" * 16384,
        "dashes": "- " * 32768, "questions": "? " * 32768, "list": "a: [" + "x," * 32760, "colons": "a:" * 32768,
        "anchors": "&a " * 21000, "stars": "a: [" + "*a," * 21000, "lines": "\n" * 65536, "notes": "#\n" * 32768,
        "keys": "".join(f"k{i}: {i}\n" for i in range(5500)), "word": "a" * 65536, "quotes": "a: '" + "''" * 32760,
        "escapes": 'a: "' + "\\x41" * 16000, "block": "a: |\n" + " x\n" * 21000, "tags": "!a " * 21000,
        "near": "".join(f"{'ctx_siz' * 8}{i}: 1\n" for i in range(900)), "spaces": "a:" + " " * 65000 + "b: c",
        "deep block": "".join(f"{' ' * i}a:\n" for i in range(350)), "directives": "%FOO bar\n" * 7000,
    }  # fmt: skip
    (tmp_path / "hostile.json").write_text(json.dumps(hostile))
    program = """
import json, resource, sys, time
from appliance.profiles.check import check
hostile = json.load(open(sys.argv[1]))
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize() + (100 << 20)
resource.setrlimit(resource.RLIMIT_AS, (size, size))
found = {}
for name, text in hostile.items():
    began = time.process_time()
    values, problems = check(text.encode(), "x", ["fallback"])
    found[name] = [time.process_time() - began, values, len(problems)]
print(json.dumps(found))
"""
    words = [sys.executable, "-c", program, str(tmp_path / "hostile.json")]
    done = subprocess.run(words, capture_output=True, text=True, env=environment(), timeout=60)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    wrong = {name: row for name, row in found.items() if row[0] > 1 or row[1] is not None or not 1 <= row[2] <= 100}
    assert wrong == {}
