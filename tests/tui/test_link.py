"""The link: lost, hung, refused, of another version, and back; the picture stays, old values are marked."""

import asyncio

import pytest

from tests.tui.fake import Fake
from tests.tui.frames import frame, see, tap, until
from tui import client as client_module
from tui import problems
from tui.client import Client, ClientError
from tui.keymap import MODES
from tui.link import Poller
from tui.pace import Pace
from tui.snap import Snap


async def test_a01_without_a_service_it_says_so_counts_down_and_goes_on_when_the_service_is_there(window, fake) -> None:
    await fake.stop()
    async with window(120, 36) as pilot:
        text = await see(pilot, "[NO LINK]", "No link to the service", "connection refused", "retry", timeout_s=2)
        assert fake.url in text
        assert "(s Swap)" in text.split("\n")[-1] and "r Retry now" in text.split("\n")[-1]
        await see(pilot, "retry 2 in 1 s")
        await fake.start()
        text = await see(pilot, "[READY]", "quick-verify", timeout_s=11)
        assert "(s Swap)" not in text


async def test_a_link_that_is_lost_keeps_the_values_and_comes_back_with_r(window, fake, monkeypatch) -> None:
    monkeypatch.setattr(problems, "BACK_S", 0.5)
    async with window(120, 36) as pilot:
        await see(pilot, "[READY]")
        await fake.stop()
        text = await see(pilot, "[NO LINK]", "STALE", "quick-verify")
        assert "q ?" in text
        await until(pilot, lambda: pilot.app.snap.link.attempt >= 2)
        await fake.start()
        await tap(pilot, "r")
        await see(pilot, "[READY]", "link is back after 00:0", timeout_s=1)
        await until(pilot, lambda: "link is back" not in frame(pilot.app), timeout_s=5)


async def test_a_service_that_hangs_is_gone_after_a_while_and_keys_still_work(window, fake, monkeypatch) -> None:
    assert client_module.STATE_TIMEOUT_S == 3.0
    monkeypatch.setattr(client_module, "STATE_TIMEOUT_S", 1.0)
    async with window(120, 36) as pilot:
        await see(pilot, "[READY]")
        fake.hangs = True
        await tap(pilot, "3")
        await see(pilot, "[3 Queue]")
        await see(pilot, "[NO LINK]", "no answer within 1 s", timeout_s=3)
        fake.hangs = False


async def test_an_unknown_key_and_a_user_key_say_which_file_and_what_to_do(window, fake) -> None:
    def refused(status: int):
        return lambda asked: (status, {"error": {"message": "no", "code": "invalid_api_key"}})

    fake.answers[("GET", "/admin/state")] = refused(401)
    async with window(120, 36, key_file="/data/keys") as pilot:
        await see(pilot, "does not let this program in", "the key from /data/keys is not known to it", "'admin ...'")
        fake.answers[("GET", "/admin/state")] = refused(403)
        await tap(pilot, "r")
        await see(pilot, "is a user key, not an admin key")
        await pilot.resize_terminal(60, 16)
        await see(pilot, "of the file keys in its data")  # what to do is at the end of the sentence
        pilot.app.client.key = ""
        fake.answers[("GET", "/admin/state")] = refused(401)
        await tap(pilot, "r")
        await see(pilot, "there is no admin key in /data/keys", "--key-file")
        del fake.answers[("GET", "/admin/state")]
        await tap(pilot, "r")
        await see(pilot, "[READY]")


async def test_a_newer_service_is_shown_but_not_changed_and_the_banner_says_which_is_older(window, fake) -> None:
    fake.state |= {"api": 2, "version": "0.9.0", "worker": "of another kind"}
    async with window(120, 36) as pilot:
        text = await see(pilot, "of another version (0.9.0)", "this program is older", "[READY]", "quick-verify")
        assert "(s Swap)" in text
        await tap(pilot, "s", "3")
        await see(pilot, "[3 Queue]")
        assert not pilot.app.screen.is_modal


async def test_a_service_without_the_admin_api_is_older(window, fake) -> None:
    fake.answers[("GET", "/admin/state")] = lambda asked: (404, {"error": {"message": "no route"}})
    async with window(120, 36) as pilot:
        await see(pilot, "[NO LINK]", "it has no /admin/state, so it is older than this program")


async def test_what_is_no_state_document_is_told_and_survived(window, fake) -> None:
    answers = [b"<html>a proxy</html>", b"[1, 2]", b"", b"\xff\xfe", b"[" * 100_000, b'{"state": 7, "running": 5}',
               b"{}"]  # fmt: skip
    async with window(120, 36) as pilot:
        await see(pilot, "[READY]")
        for raw, mode in zip(answers, MODES, strict=False):
            fake.answers[("GET", "/admin/state")] = lambda asked, raw=raw: (200, raw)
            await pilot.app.switch_mode(mode)
            for _ in range(2):
                n = len(fake.bodies("GET", "/admin/state"))
                pilot.app.poller.now()
                await until(pilot, lambda n=n: len(fake.bodies("GET", "/admin/state")) > n, what=repr(raw[:20]))
        await see(pilot, "[UNKNOWN]")


async def test_paused_nothing_is_asked_and_the_next_press_goes_on(window, fake) -> None:
    async with window(120, 36) as pilot:
        await see(pilot, "[READY]")
        await tap(pilot, "p")
        await see(pilot, "[PAUSED]", "p Go on")
        await asyncio.sleep(0.1)  # a question under way may still come
        n = len(fake.bodies("GET", "/admin/state"))
        fake.state["state"] = "draining"
        await asyncio.sleep(0.3)  # six periods
        assert len(fake.bodies("GET", "/admin/state")) == n and "[READY]" in frame(pilot.app)
        await tap(pilot, "p")
        await see(pilot, "[DRAINING]")
        assert "[PAUSED]" not in frame(pilot.app)


async def test_events_come_once_each_in_order_and_resume_after_a_lost_link(fake: Fake) -> None:
    seen: list[Snap] = []
    client = Client(fake.url, "k")
    poller = Poller(client, Pace(0.05), seen.append)
    tasks = [asyncio.ensure_future(poller.poll()), asyncio.ensure_future(poller.listen())]

    async def ids(*wanted: str) -> None:
        async with asyncio.timeout(5):
            while [e.text("id") for e in poller.snap.events] != list(wanted):
                await asyncio.sleep(0.01)

    await ids("b-1", "b-2")
    while not fake.n_listening:
        await asyncio.sleep(0.01)
    fake.tell("swap", "began")
    await ids("b-1", "b-2", "b-3")
    await fake.stop()
    fake.tell("swap", "ended")
    await fake.start()
    await ids("b-1", "b-2", "b-3", "b-4")
    resumed = [a.headers.get("Last-Event-ID") for a in fake.asked if a.path == "/admin/events"]
    assert resumed[0] is None and resumed[-1] == "b-3"
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await client.close()


async def test_the_wait_doubles_up_to_ten_seconds(fake: Fake) -> None:
    await fake.stop()
    client = Client(fake.url)
    poller = Poller(client, Pace(1.0), lambda snap: None)
    waits = [await poller._ask() for _ in range(7)]
    assert waits == [0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
    await fake.start()
    assert await poller._ask() == 1.0
    await fake.stop()
    assert await poller._ask() == 0.5
    await client.close()


async def test_a_refusal_comes_with_status_code_sentence_and_facts(fake: Fake) -> None:
    body = {"error": {"message": "a swap runs", "code": "profile_switch_in_progress", "swap_id": "0042", "type": "x"}}
    fake.answers[("POST", "/admin/swap")] = lambda asked: (409, body)
    client = Client(fake.url + "/", "secret", "jürgen")
    with pytest.raises(ClientError) as refused:
        await client.post("/admin/swap", {"to": "a"}, {"Idempotency-Key": "7"})
    error = refused.value
    assert (error.status, error.code, str(error)) == (409, "profile_switch_in_progress", "a swap runs")
    assert error.facts["swap_id"] == "0042"
    asked = fake.asked[-1]
    assert asked.headers["Authorization"] == "Bearer secret" and asked.headers["Idempotency-Key"] == "7"
    assert asked.headers["X-Colibri-User"] == "j%C3%BCrgen" and asked.body == {"to": "a"}
    await client.close()


async def test_a_redirect_does_not_carry_the_key_elsewhere(fake: Fake) -> None:
    fake.answers[("GET", "/admin/state")] = lambda asked: (302, {"error": {"message": "over there"}})
    client = Client(fake.url, "secret")
    with pytest.raises(ClientError) as refused:
        await client.state()
    assert refused.value.status == 302
    assert len(fake.asked) == 1
    await client.close()


async def test_a_long_answer_is_read_to_its_end(fake: Fake) -> None:
    lines = [{"id": i, "text": "x" * 2000} for i in range(500)]
    fake.answers[("GET", "/admin/logs")] = {"lines": lines}
    client = Client(fake.url)
    assert (await client.get("/admin/logs", {"limit": 500}))["lines"] == lines
    assert fake.asked[-1].query == {"limit": "500"}
    fake.answers[("GET", "/admin/logs")] = lambda asked: (200, b" " * (17 << 20))
    with pytest.raises(ClientError, match="larger than 16 MiB"):
        await client.get("/admin/logs")
    await client.close()


async def test_a_crash_is_a_banner_with_its_reason_and_s_offers_another_start(window, fake) -> None:
    reason = "the engine left with code 137 (killed, out of memory?)"
    fake.state |= {"state": "crashed", "reason": reason, "held": {"n": 5, "oldest_ms": 100, "refused": 0}}
    async with window(120, 36) as pilot:
        text = await see(pilot, "[CRASHED]", "The engine crashed", reason, "5 held requests are kept", "S Start again")
        assert text.split("\n")[-1].startswith(" S Start again")
        begun = []
        pilot.app.start_swap = lambda name, note="": begun.append(name)
        await tap(pilot, "S")
        await until(pilot, lambda: begun == ["quick-verify"])
        fake.state |= {"state": "degraded", "reason": "the fallback profile serves"}
        await see(pilot, "[DEGRADED]", "Degraded: the fallback profile serves")
        assert "Start again" not in frame(pilot.app)
        fake.state |= {"state": "ready", "reason": None}
        await see(pilot, "[READY]")
        await until(pilot, lambda: "Degraded" not in frame(pilot.app) and "- Engine" in frame(pilot.app))


async def test_a_long_reason_is_told_in_whole_below_the_banners_title(window, fake) -> None:
    fake.state["state"] = "degraded"
    fake.state["reason"] = "'fallback' serves instead of 'slow': the engine process ended: signal 9, out of memory?"
    async with window(80, 24) as pilot:
        await see(pilot, "- ! Degraded -", "'fallback' serves instead of 'slow'", "signal 9, out", "of memory?")
        await pilot.resize_terminal(120, 36)
        await see(pilot, "! Degraded: 'fallback' serves instead of 'slow'", "out of memory?")
