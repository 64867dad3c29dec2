"""`colibri profile apply|abort`: a swap asked for and watched until it ends. Not here: the swap (the service does it).

    --json    the swap's document as the service sent it last
"""

import argparse
import json
import sys
import time
import uuid
from contextlib import suppress
from shutil import get_terminal_size
from typing import Any, TextIO

from appliance.cli.columns import human_bytes, safe
from appliance.cli.profile_files import name_and_rev
from appliance.cli.progress import Progress
from appliance.cli.remote import Refused, Remote, remote
from engine.errors import BadModelFile, ColibriError, Unreachable, UsageError

POLL_S = 0.25
# The service itself is never restarted by a swap; a silence as long as this is not a swap's.
SILENCE_S = 20.0
SUCCEEDED = ("ready", "applied", "unchanged")
BAD_FILE = ("bad_model_file", "unsupported_model", "unsupported_tensor_type")


class NotInForce(ColibriError):
    """The swap ended, and the wanted profile does not serve."""


def apply(args: argparse.Namespace) -> int:
    name, rev = name_and_rev(args.name)
    service = remote(args)
    swap = _begun(service, {"to": name, "rev": rev, "note": args.note})
    if swap.get("ended") is None and not args.wait:
        return _began(args, swap)
    swap = _watched(service, swap)
    _say_result(args, swap)
    if swap.get("state") not in SUCCEEDED:
        raise NotInForce(_failure(swap))
    return 0


def abort(args: argparse.Namespace) -> int:
    """Exit code 0 when the profile before serves on, 1 when the swap had its way or nobody serves."""
    service = remote(args)
    swap_id = args.id
    if swap_id is None:
        running = (service.call("GET", "/admin/state") or {}).get("swap")
        if not running:
            raise NotInForce("no swap is under way; 'colibri status' shows the last one")
        swap_id = str(_told(service, running)["id"])
    if not swap_id.isascii() or not swap_id.isalnum():
        raise UsageError(f"'{swap_id[:80]}' is no swap's number; 'colibri status' shows it")
    swap = _told(service, service.call("POST", f"/admin/swap/{swap_id}/abort"))
    if not args.wait:
        return _began(args, swap)
    swap = _watched(service, swap)
    _say_result(args, swap)
    if swap.get("state") not in ("aborted", "rolled_back"):
        raise NotInForce(f"the abort came too late: {swap.get('text')}")
    return 0


def _begun(service: Remote, body: dict[str, Any]) -> Any:
    key = uuid.uuid4().hex
    try:
        try:
            return _told(service, service.call("POST", "/admin/swap", body, Idempotency_Key=key))
        except Unreachable:  # it may have been heard: the key makes the second asking the same swap
            time.sleep(POLL_S)
            return _told(service, service.call("POST", "/admin/swap", body, Idempotency_Key=key))
    except Refused as refusal:
        if refusal.code in BAD_FILE:
            refusal.exit_code = BadModelFile.exit_code
        for problem in refusal.facts.get("problems") or ():
            with suppress(KeyError, TypeError):
                at = f"{body['to']}:{problem['line']}:{problem['col']}"
                print(f"{at}: {problem['severity']}: {safe(problem['message'], 400)}", file=sys.stderr)
        raise


def _told(service: Remote, swap: Any) -> Any:
    """The document of a swap, if it is one."""
    if not isinstance(swap, dict) or not isinstance(swap.get("id"), str):
        raise service.stranger("its answer is no swap")
    return swap


def _began(args: argparse.Namespace, swap: Any) -> int:
    words = f"swap {swap['id']} is under way: {swap.get('from') or 'the command line'} -> {swap.get('to')}"
    print(json.dumps(swap) if args.json else words)
    return 0


def _watched(service: Remote, swap: Any) -> Any:
    """The document of the end. Ctrl-C ends the watching only, and says so."""
    watch = Watch(sys.stderr)
    silent_since: float | None = None
    try:
        watch.see(swap)
        while swap.get("ended") is None:
            time.sleep(POLL_S)
            try:
                swap = _told(service, service.call("GET", f"/admin/swap/{swap['id']}"))
                silent_since = None
            except Unreachable as error:
                silent_since = silent_since or time.monotonic()
                if time.monotonic() - silent_since > SILENCE_S:
                    raise Unreachable(f"swap {swap['id']} may still go on, but {error.message}") from None
                continue
            watch.see(swap)
    except KeyboardInterrupt:
        watch.close()
        print(f"swap {swap['id']} goes on in the service; 'colibri status' shows it, "
              f"'colibri profile abort {swap['id']}' ends it", file=sys.stderr)  # fmt: skip
        raise
    finally:
        watch.close()
    return swap


class Watch:
    """Each stage on stderr: rewritten while it runs on a terminal, one line when it ends everywhere."""

    def __init__(self, out: TextIO) -> None:
        self._out, self._line = out, Progress(out)
        self._told: set[str] = set()

    def see(self, swap: Any) -> None:
        stages = [stage for stage in swap.get("stages", ()) if stage.get("name") != "plan"]
        for n, stage in enumerate(stages, 1):
            if stage.get("state") in ("ok", "failed"):
                self._once(f"{n}", f"{n}/{len(stages)} {_ended(stage)}")
        for n, rescue in enumerate(swap.get("rescue", ()), 1):
            words = f"{rescue.get('why')} to {rescue.get('profile')}"
            self._once(f"r{n}", words)
            if rescue.get("state") != "running":
                reason = f"  {rescue['reason']}" if rescue.get("reason") else ""
                self._once(f"r{n} end", f"{words} {rescue.get('state')} {_seconds(rescue.get('took_s'))}{reason}")
        if swap.get("ended") is None:
            self._under_way(swap, stages)

    def close(self) -> None:
        self._line.close()

    def _under_way(self, swap: Any, stages: list[Any]) -> None:
        rescue = next((r for r in swap.get("rescue", ()) if r.get("state") == "running"), None)
        stage = next((s for s in stages if s.get("state") == "running"), None)
        words = ""
        if rescue:
            words = f"{rescue.get('why')} to {rescue.get('profile')}: {rescue.get('stage')}"
        elif stage:
            words = f"{stages.index(stage) + 1}/{len(stages)} {_running(stage)}"
        held = (swap.get("held") or {}).get("n")
        words += f"  held {held}" if words and held else ""
        words += "  aborting" if words and swap.get("is_aborting") else ""
        if words and self._out.isatty():  # a line that wraps could not be rewritten
            self._line.say_over(safe(words, max(20, get_terminal_size().columns - 2)))

    def _once(self, key: str, words: str) -> None:
        if key not in self._told:
            self._told.add(key)
            self._line.close()
            print(safe(words, 300), file=self._out, flush=True)


def _ended(stage: Any) -> str:
    detail = f"  {stage['detail']}" if stage.get("detail") else ""
    return f"{stage.get('name')!s:<5} {stage.get('state')!s:<6} {_seconds(stage.get('took_s')):>7}{detail}"


def _running(stage: Any) -> str:
    progress = stage.get("progress") or {}
    done, total, unit = progress.get("done"), progress.get("total"), progress.get("unit", "")
    words = [f"{stage.get('name')!s:<5}", _seconds(stage.get("took_s"))]
    if done is not None and total:
        amount = f"{done:g}/{total:g} {unit}"
        if unit == "bytes":
            amount = f"{human_bytes(int(done))} of {human_bytes(int(total))}"
        words.append(f"{done / total:.0%}  {amount}")
    if progress.get("rate"):
        rate = human_bytes(int(progress["rate"])) if unit == "bytes" else f"{progress['rate']:.1f} {unit}"
        words.append(f"{rate}/s")
    if progress.get("eta_s") is not None:
        words.append(f"{progress['eta_s']:.0f} s left")
    words += [str(progress["note"])] if progress.get("note") else []
    words += [f"limit {stage['limit_s']:g} s"] if stage.get("limit_s") else []
    return "  ".join(words)


def _seconds(value: Any) -> str:
    return f"{value:.1f} s" if isinstance(value, int | float) else ""


def _say_result(args: argparse.Namespace, swap: Any) -> None:
    print(json.dumps(swap, ensure_ascii=False) if args.json else safe(str(swap.get("text", "")), 600))


def _failure(swap: Any) -> str:
    reason = swap.get("reason") or {}
    serving = next((r.get("profile") for r in swap.get("rescue", ()) if r.get("state") == "ok"), None)
    if swap.get("state") in ("aborted", "refused"):
        serving = swap.get("from") or "what served before"
    ends = f"{serving} serves" if serving else "nobody serves, waiting requests are kept" if (
        swap.get("state") == "crashed") else "'colibri status' tells what serves"  # fmt: skip
    why = reason.get("message") or ("the swap was aborted" if swap.get("state") == "aborted" else "no reason was given")
    advice = f"; {reason['advice']}" if reason.get("advice") else ""
    return f"{swap.get('to')} is not in force: {why}; {ends}{advice}"
