"""`colibri status`: what a running service does, as plain text for any terminal and for scripts. Not here: changes.

    --json: the document of GET /admin/state as the service sent it
"""

import argparse
import json
from collections.abc import Iterator
from typing import Any

from appliance.cli.columns import columns, human_bytes, safe
from appliance.cli.remote import add_remote, remote

NAME = "status"
HELP = "what the running service does, as plain text"
WORKER = {"pid": "pid", "threads": "threads", "batch": "batch_size", "isa": "isa", "restarts": "restarts"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Ask a running service for its state and print it as plain text: what serves, how\n"
        "fast, who waits, what the last swap did. `colibri tui` shows the same, live."
    )
    parser.epilog = (
        "examples:\n  colibri status\n  colibri status --url http://127.0.0.1:9000 --json\n"
        "  docker compose exec colibri colibri status      # inside the container"
    )
    add_remote(parser)
    parser.add_argument("--json", action="store_true", help="the service's own document on stdout")


def run(args: argparse.Namespace) -> int:
    document = remote(args).call("GET", "/admin/state")
    # The widest name counts whether it is there or not: a script may cut at a fixed column.
    print(json.dumps(document) if args.json else columns([(name.ljust(9), words) for name, words in rows(document)]))
    return 0


def rows(document: Any) -> Iterator[tuple[str, str]]:
    """A name and a sentence per subject. A service of another version may lack any key: then its part is left out."""

    def at(*path: str) -> Any:
        found = document
        for key in path:
            found = found.get(key) if isinstance(found, dict) else None
        return found

    up = _time(at("uptime_s"))
    yield "state", _join(f"[{_word(at('state')).upper()}]", up and f"up {up}", _word(at("reason")))
    profile = at("profile", "name")
    yield "profile", _join(_word(profile) or "none", _tag("rev", at("profile", "rev")), _word(at("profile", "summary")))
    model = _word(at("model", "id"))
    yield "model", _join(
        model or "none", _word(at("model", "architecture")), _size(at("model", "size")),
        _tag("ctx", at("worker", "n_ctx")), _pair("kv", at("worker", "type_k"), at("worker", "type_v")),
    )  # fmt: skip
    worker = at("worker") if isinstance(at("worker"), dict) else {}
    facts = (_tag(name, worker.get(key)) for name, key in WORKER.items())
    yield "worker", _join(*facts)
    busy, total = at("slots", "busy"), at("slots", "total")
    yield "queue", _join(
        f"{busy} of {total} slots busy" if total is not None else "", _tag("waiting", at("n_waiting")),
        _tag("held", at("held", "n")), _tag("refused", at("held", "refused")),
    )  # fmt: skip
    yield "speed", _join(
        _rate("answer", at("speeds", "predicted_per_second")), _rate("prompt", at("speeds", "prompt_per_second")),
        _tag("first token p50 ms", at("ttft", "p50_ms")), _tag("p95 ms", at("ttft", "p95_ms")),
    )  # fmt: skip
    served = at("requests")
    yield "served", _join(*(_tag(name, n) for name, n in served.items())) if isinstance(served, dict) else "?"
    yield "memory", _join(
        _named("engine", at("memory", "worker", "anon_bytes")), _named("service", at("memory", "api", "anon_bytes")),
        _named("machine free", at("memory", "machine", "available")), _named("of", at("memory", "machine", "total")),
    )  # fmt: skip
    swap = at("swap")
    if isinstance(swap, dict):
        yield "swap", _join(f"{_word(swap.get('from'))} -> {_word(swap.get('to'))}", _word(swap.get("stage")),
                            _time(swap.get("elapsed_s")), _tag("id", swap.get("id")))  # fmt: skip
    if at("last_swap"):
        yield "last swap", _word(at("last_swap", "text"), 200)
    if at("error"):
        yield "error", _word(at("error", "message"), 300)
    for text in _items(at("warnings")):
        yield "warning", _word(text, 200)
    for event in _items(at("events")):
        if isinstance(event, dict):
            yield "event", _join(_word(event.get("level")), _word(event.get("text"), 200))


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _word(value: Any, limit: int = 120) -> str:
    return "" if value is None else safe(str(value), limit)


def _tag(name: str, value: Any) -> str:
    shown = f"{value:.0f}" if isinstance(value, float) else _word(value)
    return f"{name} {shown}" if shown else ""


def _pair(name: str, a: Any, b: Any) -> str:
    return _tag(name, a if a == b else f"{_word(a)}/{_word(b)}")


def _size(value: Any) -> str:
    return human_bytes(value) if isinstance(value, int) else ""


def _named(name: str, value: Any) -> str:
    return f"{name} {_size(value)}" if _size(value) else ""


def _rate(name: str, value: Any) -> str:
    return f"{name} {value:.1f} tok/s" if isinstance(value, int | float) else ""


def _time(seconds: Any) -> str:
    if not isinstance(seconds, int | float):
        return ""
    minutes, s = divmod(int(seconds), 60)
    hours, m = divmod(minutes, 60)
    days, h = divmod(hours, 24)
    return f"{days}d {h:02}:{m:02}" if days else f"{h}:{m:02}:{s:02}"


def _join(*parts: str) -> str:
    return ", ".join(filter(None, parts)) or "-"
