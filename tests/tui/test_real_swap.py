"""The terminal program in front of a real service: edit, save, review, swap, roll back, abort, crash. Scripted engine.

Everything between the keys and the worker processes is real; only the worker's model is a script.
"""

from pathlib import Path

from appliance.supervisor import Supervisor
from tests.appliance.api.service import service
from tests.tui.frames import frame, see, until
from tui.app import ColibriApp
from tui.client import Client
from tui.looks import Looks
from tui.pace import Pace

LIMITS = {"start_timeout": 20.0, "warm_timeout": 20.0, "check_timeout": 20.0}
PROFILES = {
    "quick": {"summary": "short answers", "ctx_size": 256, "alias": "quick", "warmup": LIMITS},
    "long": {"summary": "long documents", "ctx_size": 384, "alias": "long", "cache_type_k": "f16", "warmup": LIMITS},
    "fallback": {"ctx_size": 128, "alias": "spare", "warmup": LIMITS},
}


async def test_edit_save_review_swap_fail_and_abort_against_the_real_service(tmp_path: Path) -> None:
    scripts: dict[str, dict] = {}
    async with service(tmp_path, profiles=PROFILES, profile="quick", scripts=scripts) as running:
        app = ColibriApp(Client(running.base, running.admin, "ops"), looks=Looks(ascii=True), pace=Pace(0.1))
        swapper, supervisor = running.services.swapper, running.services.supervisor
        assert isinstance(supervisor, Supervisor)
        first = supervisor.pid
        async with app.run_test(size=(120, 36), notifications=True) as pilot:
            await see(pilot, "[READY]", "quick")
            await pilot.press("2")
            await see(pilot, "ACTIVE", "long", "batch-tag")
            screen = app.screen
            screen.table.stand_on("long")
            await see(pilot, ">  long", "- long ")
            # An error by hand, found by the service at its place; mended; saved as a revision of the overlay.
            await pilot.press("enter")
            await see(pilot, "Edit  long.yaml", "ctx_size: 384")
            editor = app.screen
            text = editor.text
            editor.area.replace(text.replace("ctx_size: 384", "ctx_sise: 1024"), (0, 0), editor.area.document.end)
            await see(pilot, "1 error", "ctx_sise", "(^r Review)")
            await pilot.press("ctrl+g")
            row = text.splitlines().index("ctx_size: 384")
            assert editor.area.cursor_location[0] == row
            editor.area.replace(text.replace("ctx_size: 384", "ctx_size: 1024"), (0, 0), editor.area.document.end)
            await see(pilot, "0 errors", "was 256.0 KiB", "plan    the model is trained on 512 positions")
            await pilot.press("ctrl+s")
            await see(pilot, "Saved long as rev 2")
            assert "ctx_size: 1024" in (tmp_path / "data" / "profiles" / "long.yaml").read_text()
            # What it would change, then the swap itself.
            await pilot.press("ctrl+t")
            await see(pilot, "ctx_size", "What this changes", "+ name: long")
            await pilot.press("escape")
            await pilot.press("ctrl+r")
            await see(pilot, "Review: swap quick -> long rev 2", "[ Swap now ]")
            await pilot.press("tab", "enter")
            await see(pilot, "Swap ", "quick -> long", "What happened: long serves.", timeout_s=30)
            assert (swapper.in_force.name, supervisor.info["n_ctx"]) == ("long", 1024)
            assert supervisor.pid not in (None, first)
            await see(pilot, "[READY]", "| long |")
            # A profile whose file is bad: the old one serves again and the reason is on the screen.
            scripts["quick"] = {"load": "bad"}
            app.start_swap("quick")
            await see(pilot, "Review: swap long -> quick", "[ Swap now ]")
            await pilot.press("tab", "enter")
            await see(pilot, "FAILED, rolled back", "the download is cut short", "bad_model_file", timeout_s=30)
            assert "long rev 2 was started again" in " ".join(frame(app).split())
            assert swapper.in_force.name == "long"
            # Aborted while it warms: back to the old one, and the history knows who asked.
            scripts["quick"] = {"load_s": 60.0}
            await until(pilot, lambda: app.screen.is_old_enough)
            await pilot.press("r")
            await see(pilot, "Review: swap long -> quick", "[ Swap now ]")
            await pilot.press("tab", "enter")
            await see(pilot, "4 of 5  warm", timeout_s=30)
            await pilot.press("A")
            await see(pilot, "[ Abort and roll back ]")
            await pilot.press("tab", "enter")
            await see(pilot, "aborted", "long rev 2 was started again and is READY", timeout_s=30)
            assert [swap.by for swap in swapper.swaps()] == ["ops"] * 3
            assert app.faults == []
