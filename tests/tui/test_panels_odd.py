"""Documents that no service of ours would send: no panel raises, none is wider or longer than it was asked to be."""

import copy
import random
import re
from typing import Any

import pytest

from tests.tui.fake import STATE
from tui.looks import Looks
from tui.panels.batch import batch
from tui.panels.engine import engine, engine_strip
from tui.panels.events import events
from tui.panels.host import host
from tui.panels.memory import memory, memory_strip
from tui.panels.requests import SORTS, View, chosen, rows, table
from tui.panels.speed import speed
from tui.snap import Facts, Link, Snap

RENDERERS = (engine, engine_strip, speed, memory, memory_strip, host, batch, events)
ODD: list[Any] = [
    None, True, -1, 0, 1, 0.5, 1e308, -1e308, 10**400, float("nan"), float("inf"), "", "[bold]x[/", "\x1b[2J",
    "日本語モデル" * 9, "a\nb\tc", "e\u0301\u202e\u200b", "🐦" * 30, "x" * 5000, [], {}, [None], [{}], [[1]],
    {"total": 1e-300}, {"id": {"id": 1}},
]  # fmt: skip
SIZES = ((36, 6), (29, 6), (76, 3), (56, 5), (116, 3), (1, 1), (0, 0), (7, 2), (200, 40))


def spoilt(value: Any, chance: random.Random, share: float) -> Any:
    """The document with some of its values replaced by odd ones, at any depth."""
    if chance.random() < share:
        return chance.choice(ODD)
    if isinstance(value, dict):
        return {key: spoilt(each, chance, share) for key, each in value.items() if chance.random() > share / 4}
    if isinstance(value, list):
        return [spoilt(each, chance, share) for each in value * chance.choice((1, 1, 3))]
    return value


def fits(lines: list[Any], width: int, height: int) -> None:
    assert len(lines) <= height
    for line in lines:
        assert line.cell_len <= width, (width, line.plain)
        assert not re.search(r"[\x00-\x1f\x7f-\x9f]", line.plain), line.plain


@pytest.mark.parametrize("seed", range(60))
def test_no_panel_raises_and_none_is_too_wide(seed: int) -> None:
    chance = random.Random(seed)
    document = spoilt(copy.deepcopy(STATE), chance, chance.choice((0.05, 0.2, 0.6)))
    link = Link(is_up=chance.random() < 0.7, at=chance.choice((None, 1.0)), lost_at=1.0)
    snap = Snap(Facts(document), link, now=chance.choice((1.0, 500.0)))
    looks = Looks(colours=chance.choice(("full", "16", "mono")), ascii=chance.random() < 0.5)
    for width, height in SIZES:
        for draw in RENDERERS:
            picture = draw(snap, looks, width, height)
            fits(picture.lines, width, height)
        found = chosen(rows(snap), chance.choice(SORTS), chance.choice(("", "state:", "x", "lane:batch")))
        here = found[0].id if found else None
        fits(table(found, View(here, chance.randrange(3), chance.randrange(3)), looks, width, height), width, height)


def test_nothing_at_all_is_dashes() -> None:
    for draw in RENDERERS:
        text = "\n".join(line.plain for line in draw(Snap(), Looks(ascii=True), 76, 6).lines)
        assert not re.search(r"[1-9]|None|nan|inf", re.sub("p50|p95", "", text)), text
