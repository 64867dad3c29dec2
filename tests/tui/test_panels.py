"""The dashboard's panels against values worked out by hand: each number where a reader looks for it."""

import copy
from typing import Any

import pytest

from tests.tui.fake import GIB, STATE
from tui.looks import Looks
from tui.panels.engine import engine, engine_strip
from tui.panels.events import events
from tui.panels.host import host
from tui.panels.memory import bar, cells, memory, memory_parts, memory_strip
from tui.panels.picture import Picture
from tui.panels.requests import Row, View, chosen, rows, short_id, table
from tui.panels.speed import speed
from tui.snap import Facts, Link, Snap

ASCII = Looks(ascii=True)


def snap(is_up: bool = True, age_s: float = 0.0, **changes: Any) -> Snap:
    """The scripted document with some values changed by dotted path ("worker__anon" is worker.anon)."""
    document = copy.deepcopy(STATE)
    for path, value in changes.items():
        *parents, last = path.split("__")
        here = document
        for name in parents:
            here = here[name]
        here[last] = value
    return Snap(Facts(document), Link(url="http://x", is_up=is_up, at=100.0), now=100.0 + age_s)


def words(picture: Picture) -> list[str]:
    return [line.plain.rstrip() for line in picture.lines]


def test_engine_at_a_third_of_120_columns() -> None:
    shown = words(engine(snap(profile__rev=14, last_swap__ended=0.0), ASCII, 36, 6))
    assert shown[0] == "state    [READY]   up 5m10s"
    assert shown[1] == "profile  quick-verify  rev 14"
    assert shown[2] == "model    qwen3-4b-q4_k_m    2.33 GiB"
    assert shown[3] == "ctx      8192 x 4 slots   kv q8_0"
    assert shown[4] == "threads  16   batch 512/256   vnni"
    assert shown[5].startswith("last swap  ") and shown[5].endswith(" ok 11.8s")


def test_engine_says_what_matters_more_than_the_last_swap() -> None:
    running = {"id": "0042", "n": 4, "of": 5, "stage": "warm", "elapsed_s": 21.0}
    assert words(engine(snap(swap=running), ASCII, 36, 6))[5] == ">> swap 0042 4/5 warm 00:21"
    broken = snap(state="crashed", reason="exit code 137, out of memory?")
    assert words(engine(broken, ASCII, 36, 6))[5] == "! exit code 137, out of memory?"
    rolled = snap(last_swap__state="rolled_back")
    assert " rolled back 11.8s" in words(engine(rolled, ASCII, 36, 6))[5]
    assert words(engine(snap(last_swap=None), ASCII, 36, 6))[5] == "last swap  none"


def test_two_kv_types_and_one_slot_are_told() -> None:
    shown = words(engine(snap(worker__type_v="q4_0", slots__total=1), ASCII, 40, 6))[3]
    assert shown == "ctx      8192 x 1 slot   kv q8_0/q4_0"


def test_a_wide_model_name_is_cut_by_cells() -> None:
    shown = engine(snap(model__id="日本語の大きなモデルの名前です"), ASCII, 36, 6).lines[2]
    assert shown.cell_len == 36
    assert shown.plain.endswith(" 2.33 GiB") and "~" in shown.plain


def test_speed_at_a_third_of_120_columns() -> None:
    shown = words(speed(snap(speeds__history=[0.0] * 59 + [23.4]), ASCII, 36, 6))
    assert shown[0] == "decode   23.4 tok/s                @"
    assert shown[1] == "prefill   212 tok/s"
    assert shown[2] == "TTFT     p50 340 ms   p95 1.21 s"
    assert shown[3] == "served   1,284 req  errors 2 (0.2%)"  # 2 of 1,286
    assert shown[4] == "slots    [###-] 3/4 busy"
    assert shown[5] == "queue    3 waiting   oldest 2.1s"


def test_an_idle_engine_shows_its_measured_speed_and_no_curve() -> None:
    idle = snap(slots__busy=0, speeds__now_per_second=0.0, speeds__history=[0.0] * 60)
    assert words(speed(idle, ASCII, 36, 6))[0] == "decode   23.4 tok/s  idle"


def test_old_numbers_are_marked() -> None:
    shown = words(speed(snap(is_up=False), ASCII, 36, 6))
    assert shown[0].startswith("decode   23.4 tok/s?") and shown[4].startswith("slots    [###-] 3/4?")
    assert words(engine_strip(snap(is_up=False), ASCII, 76, 3))[0].startswith("last known [READY] rev 14")


def test_refused_requests_and_held_ones_are_warnings() -> None:
    assert words(speed(snap(requests__refused=7), ASCII, 36, 6))[4].endswith("3/4  ! refused 7")
    assert words(speed(snap(held__n=5), ASCII, 60, 6))[5].endswith("5 held")


def test_memory_of_packed_weights_lies_in_the_engine() -> None:
    """Worker 8 GiB anonymous: 3 weights, 2 KV, 3 the rest; API 1; cache 10; free 20 of 64: 25 are other programs'."""
    parts = memory_parts(snap(
        model__load_mode="resident", worker__weights_bytes=3 * GIB, worker__kv_bytes=2 * GIB,
        memory={"api": {"anon_bytes": GIB}, "worker": {"anon_bytes": 8 * GIB, "rss_bytes": 9 * GIB},
                "machine": {"total": 64 * GIB, "free": 20 * GIB, "cached": 10 * GIB}},
    ))  # fmt: skip
    assert [part / GIB for part in parts.row()] == [3, 2, 4, 10, 25, 20]
    assert sum(parts.row()) == parts.total


def test_memory_of_mapped_weights_is_page_cache() -> None:
    """Worker 5 GiB anonymous and 7 mapped, of 12 in the file: 7 of the 30 GiB cache are weights."""
    parts = memory_parts(snap(
        model__load_mode="mmap", worker__weights_bytes=12 * GIB, worker__kv_bytes=2 * GIB,
        memory={"api": {"anon_bytes": GIB}, "worker": {"anon_bytes": 5 * GIB, "rss_bytes": 12 * GIB},
                "machine": {"total": 64 * GIB, "free": 20 * GIB, "cached": 30 * GIB}},
    ))  # fmt: skip
    assert [part / GIB for part in parts.row()] == [7, 2, 4, 23, 8, 20]
    assert sum(parts.row()) == parts.total


def test_memory_without_a_worker_is_the_others() -> None:
    gone = snap(worker={"pid": None}, memory={"api": {}, "worker": {}, "machine": {"total": 64 * GIB, "free": 50 * GIB,
                                                                                  "cached": 4 * GIB}})  # fmt: skip
    parts = memory_parts(gone)
    assert (parts.weights, parts.kv) == (0, 0)
    assert parts.other == 10 * GIB


def test_the_bar_rounds_so_that_its_cells_are_all_there() -> None:
    assert cells([1, 1, 1, 1, 1, 1], 6, 36) == [6] * 6
    assert cells([32, 16, 8, 8, 0, 0], 64, 32) == [16, 8, 4, 4, 0, 0]
    assert cells([0.01, 0, 0, 0, 0, 63.99], 64, 10) == [1, 0, 0, 0, 0, 9], "what is there at all is seen"
    assert sum(cells([1, 2, 3, 5, 7, 11], 29, 17)) == 17


def test_the_bar_in_letters() -> None:
    parts = memory_parts(snap(
        model__load_mode="resident", worker__weights_bytes=2 * GIB, worker__kv_bytes=2 * GIB,
        memory={"api": {}, "worker": {"anon_bytes": 5 * GIB}, "machine": {"total": 16 * GIB, "free": 6 * GIB,
                                                                          "cached": 3 * GIB}},
    ))  # fmt: skip
    assert ASCII.line(*bar(parts, 18)).plain == "[WWKKc===oo......]"


def test_memory_in_words() -> None:
    shown = words(memory(snap(memory__major_faults_s=212.0, memory__disk_read_s=148e6), ASCII, 36, 6))
    assert shown[1] == "W weights  2.33 GiB  100.0% resident"
    assert shown[2] == "K kv       2.39 GiB  used 0.74  31%"
    assert shown[3].startswith("c engine   0.09 GiB = cache 18.1 GiB")  # 90 MiB of the API
    assert shown[4].endswith(". free  35.6 GiB")
    assert "!majflt 212/s" in shown[5] and "disk 148 MB/s" in shown[5]
    assert memory(snap(), ASCII, 36, 6).right == "limit 48.00 of 62.50 GiB"
    assert memory(snap(memory__machine__limit=None), ASCII, 36, 6).right == "62.50 GiB"


def test_swap_in_use_is_a_warning() -> None:
    used = memory(snap(memory__machine__swap_used=GIB // 2), ASCII, 36, 6).lines[5]
    assert used.plain.startswith("!swap 0.5/8")


def test_host_with_two_nodes_and_a_warning_in_whole() -> None:
    said = "the CPU governor is powersave, not performance, which costs speed; run `colibri host apply --yes` as root"
    picture = host(snap(warnings=[said]), ASCII, 56, 8)
    shown = words(picture)
    assert shown[0] == "node0 [################----]  78%  2.9 GHz performance"
    assert shown[1] == "node1 [#-------------------]   4%  1.2 GHz performance"
    assert shown[2] == "THP madvise   swappiness 10   load 16.2   temp 71C ok"
    assert shown[3] == "engine  mem 5.12 GiB of 48.00 GiB   restarts 0"
    assert " ".join(line.strip() for line in shown[4:]) == f"! {said}"
    assert picture.right == "edge-07  2 x 16 cores"


def test_a_warning_takes_the_place_of_figures_at_80_columns() -> None:
    assert words(memory_strip(snap(), ASCII, 76, 3))[2].endswith("node0 78% 2.9GHz  node1 4%  THP madvise")
    assert words(memory_strip(snap(warnings=["swap is in use"]), ASCII, 76, 3))[2] == "! swap is in use"


def test_eight_nodes_fit_five_lines() -> None:
    nodes = [{"node": n, "cpus": 8, "util": n / 10, "mhz": 2000, "governor": None} for n in range(8)]
    text = "\n".join(words(host(snap(cpu__nodes=nodes), ASCII, 56, 5)))
    assert all(f"node{n}" in text for n in range(8)) and "70%" in text


def test_the_newest_event_comes_first() -> None:
    shown = words(events(snap(), ASCII, 116, 3))
    assert "WARN  request  a request was cut off" in shown[0]
    assert "INFO  swap     long-doc -> quick-verify ok 11.8 s" in shown[1]
    assert words(events(snap(events=[]), ASCII, 116, 3)) == ["nothing has happened yet"]
    document = snap()
    twice = Snap(document.facts, document.link, tuple(document.rows("events")[::-1] * 2), document.now)
    assert words(events(twice, ASCII, 116, 9)) == shown, "told by the stream and by the document"


@pytest.mark.parametrize("facts,state,age_s", [
    ({"state": "running", "phase": "decode", "running_ms": 14000, "queue_ms": 12}, "decode", 14.012),
    ({"state": "running", "phase": "prefill", "running_ms": 9000, "queue_ms": 0}, "prefill", 9.0),
    ({"state": "stopping", "phase": "decode", "running_ms": 1, "queue_ms": 0}, "stopping", 0.001),
])  # fmt: skip
def test_a_running_request(facts: dict[str, Any], state: str, age_s: float) -> None:
    (row,) = rows(snap(running=[{"id": "chatcmpl-1", **facts}], waiting=[]))
    assert (row.state, row.age_s) == (state, pytest.approx(age_s))


def test_requests_as_a_table() -> None:
    found = chosen(rows(snap()))
    lines = [line.plain.rstrip() for line in table(found, View("chatcmpl-10a4-0", 0, 2), ASCII, 116, 8)]
    assert [" ".join(line.split()) for line in lines[:4]] == [
        "ID STATE LANE PROMPT PREFILL GENERATED TOK/S TTFT AGE ETA",
        "> 10a4 decode interactive 1024 [##########] 100% [######----] 154/256 11.7 0.34s 14s 9.0s",
        "10a6 prefill batch 6144 [####------] 41% [----------] 0/128 - - 9.0s 33s",
        "10a7 waiting interactive 220 [----------] 0% [ ] 0/- - - 2.1s 9.0s",
    ]
    assert lines[4] == "  +2 more"


def test_a_short_table_says_how_many_are_left_out() -> None:
    found = [Row(f"r-{n}", "waiting", "batch", "m", *([None] * 8)) for n in range(9)]
    lines = [line.plain.rstrip() for line in table(found, View("r-4", 3, 20), ASCII, 76, 5)]
    assert [line.split()[0] for line in lines[1:4]] == ["r-3", ">", "r-5"]
    assert lines[4] == "  +23 more  3 above"


def test_orders_and_filters() -> None:
    found = [
        Row("a", "waiting", "batch", "m1", 1, 0, 0, None, None, None, 90.0, None),
        Row("b", "decode", "batch", "m2", 1, 1, 5, 9, None, None, 1.0, None),
        Row("c", "decode", "interactive", "m2", 1, 1, 50, 99, None, None, 8.0, None),
        Row("d", "prefill", "interactive", "m1", 1, 0, 0, 9, None, None, 3.0, None),
    ]
    ids = {sort: "".join(row.id for row in chosen(found, sort)) for sort in ("age", "state", "tokens", "lane")}
    assert ids == {"age": "cdba", "state": "cbda", "tokens": "cbad", "lane": "bacd"}
    picked = {text: "".join(row.id for row in chosen(found, "lane", text)) for text in (
        "state:decode", "lane:batch m2", "M1", "id:c", "nothing", "  ")}  # fmt: skip
    assert picked == {"state:decode": "bc", "lane:batch m2": "b", "M1": "ad", "id:c": "c", "nothing": "", "  ": "bacd"}


@pytest.mark.parametrize("name,short", [
    ("chatcmpl-1f0c22ad99887766554433221100ffee-0", "1f0c22ad"),
    ("cmpl-1f0c22ad99887766554433221100ffee-3", "1f0c22ad-3"),
    ("chatcmpl-10a4-0", "10a4"), ("short", "short"), ("a-very-long-name-of-a-client", "a-very-lon"),
])  # fmt: skip
def test_ids_are_short_and_tell_choices_apart(name: str, short: str) -> None:
    assert short_id(name) == short
