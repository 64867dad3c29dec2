"""Rows of profiles: states, fits, uses; how often they are judged and planned."""

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from appliance.api.listing import PLAN_S, Listing
from appliance.profiles import ProfileStore
from engine.errors import DoesNotFit

GOOD = "name: {}\nsummary: for tests\nctx_size: 2048\n"
PLAN = {"verdict": "OK", "reason": "it fits", "n_ctx": 2048, "model": "m.gguf", "weights_bytes": 7, "cached": 0.5,
        "changes": [], "stages": []}  # fmt: skip


class Plans:
    """The swapper as a list sees it; every plan is counted."""

    since = 90.0
    current = None

    def __init__(self) -> None:
        self.in_force: Any = SimpleNamespace(name="one", rev=1, settings=SimpleNamespace(fallback="fallback"))
        self.asked: Counter[str] = Counter()
        self.documents: list[dict[str, Any]] = []
        self.refusal: DoesNotFit | None = None

    def past(self) -> list[dict[str, Any]]:
        return self.documents

    async def plan(self, name: str, text: str | None = None) -> dict[str, Any]:
        self.asked[name] += 1
        if self.refusal is not None:
            raise self.refusal
        return dict(PLAN)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def profiles(folder: Path) -> ProfileStore:
    """`one` and `two` are good, `bad` is not, `new` is a draft only; nothing is packaged but the fallback."""
    packaged = folder / "packaged"
    packaged.mkdir()
    (packaged / "fallback.yaml").write_text(GOOD.format("fallback"))
    store = ProfileStore(folder, packaged)
    for name in ("one", "two"):
        store.save(name, GOOD.format(name), if_match=None)
    (store.folder / "bad.yaml").write_text("name: bad\nctx_size: much\nctxsize: 1\n")
    store.save("new", "name: nothing yet", if_match=None, draft=True)
    return store


async def by_name(listing: Listing) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in await listing.rows()}


async def test_every_profile_has_a_row_with_its_state(tmp_path: Path) -> None:
    rows = await by_name(Listing(profiles(tmp_path), Plans()))
    assert {name: row["state"] for name, row in rows.items()} == {
        "bad": "errors", "fallback": "valid", "new": "draft", "one": "active", "two": "valid",
    }  # fmt: skip
    assert len({tuple(row) for row in rows.values()}) == 1, "all rows have the same keys"
    assert {name: row["fit"] for name, row in rows.items() if row["fit"] != "OK"} == {"bad": "?", "new": "?"}
    two, bad = rows["two"], rows["bad"]
    assert (two["rev"], two["source"], two["summary"], two["ctx_size"], two["model"], two["weights_bytes"]) == (
        1, "edited", "for tests", 2048, "m.gguf", 7,
    )  # fmt: skip
    assert (bad["n_errors"], bad["weights_bytes"], bad["model"]) == (2, None, None)
    assert rows["fallback"]["is_fallback"]
    assert (rows["fallback"]["rev"], rows["fallback"]["source"]) == (0, "packaged")
    assert [name for name, row in rows.items() if row["has_draft"]] == ["new"]


async def test_a_plan_that_cannot_be_made_is_a_reason_and_no_error(tmp_path: Path) -> None:
    plans = Plans()
    plans.refusal = DoesNotFit("9 GB are needed and 8 GB are free")
    rows = await by_name(Listing(profiles(tmp_path), plans))
    assert (rows["two"]["fit"], rows["two"]["fit_reason"]) == ("?", "9 GB are needed and 8 GB are free")


async def test_plans_are_made_again_when_they_are_old_or_something_changed(tmp_path: Path) -> None:
    store, plans, clock = profiles(tmp_path), Plans(), Clock()
    listing = Listing(store, plans, clock)
    await listing.rows()
    await listing.rows()
    assert plans.asked == {"one": 1, "two": 1, "fallback": 1}
    store.save("two", GOOD.format("two") + "sampling:\n  temp: 0\n", if_match=store.text("two").etag)
    await listing.rows()
    assert plans.asked == {"one": 1, "two": 2, "fallback": 1}
    plans.in_force = SimpleNamespace(name="two", rev=2, settings=plans.in_force.settings)
    rows = await by_name(listing)
    assert plans.asked == {"one": 2, "two": 3, "fallback": 2}
    assert (rows["one"]["state"], rows["two"]["state"]) == ("valid", "active")
    clock.now += PLAN_S + 0.1
    await listing.rows()
    assert plans.asked == {"one": 3, "two": 4, "fallback": 3}


async def test_the_last_use_is_the_newest_swap_that_succeeded(tmp_path: Path) -> None:
    plans = Plans()
    plans.documents = [
        {"to": "two", "state": "ready", "ended": 10.0, "by": "ann", "tok_s": 9.5},
        {"to": "two", "state": "applied", "ended": 20.0, "by": "bob", "tok_s": None},
        {"to": "two", "state": "rolled_back", "ended": 30.0, "by": "eve", "tok_s": 1.0},
        {"id": "0009", "state": "cut"},
    ]
    rows = await by_name(Listing(profiles(tmp_path), plans))
    assert [rows["two"][key] for key in ("last_used", "last_by", "last_tok_s")] == [20.0, "bob", 9.5]
    assert [rows["one"][key] for key in ("last_used", "last_by", "last_tok_s")] == [90.0, "", None]
    assert rows["bad"]["last_used"] is None


async def test_a_profile_deleted_by_hand_leaves_the_list(tmp_path: Path) -> None:
    store = profiles(tmp_path)
    listing = Listing(store, Plans())
    await listing.rows()
    (store.folder / "two.yaml").unlink()
    assert "two" not in await by_name(listing)
