"""Thousands of odd requests made from /openapi.json: none may end in a 5xx, a hang or a foreign error shape.

    python -m benchmarks.fuzz --url http://127.0.0.1:8080 --key-file DATA/keys --requests 10000 [--seed 1]

Schemathesis draws the requests, valid and broken ones by turns; they are sent one after another with the admin key.
A 503 or 504 that says when to come back is an answer while a swap runs, not a fault. The server should have a data
folder of its own: requests save, delete and apply profiles. Exit code 1 when something was found.
Not here: hosts, keys and sockets that misbehave (tests/appliance/api).
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import hypothesis
import requests
import schemathesis
from schemathesis import GenerationMode

ANSWER_S = 60.0
SETTINGS: dict[str, Any] = {
    "database": None, "deadline": None, "suppress_health_check": list(hypothesis.HealthCheck),
    "phases": [hypothesis.Phase.generate],
}  # fmt: skip


@dataclass
class Found:
    """What a hunt has met: statuses by route, and one sentence for each fault."""

    n: int = 0
    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)


def hunt(url: str, key: str, *, n: int, seed: int, document: dict[str, Any] | None = None) -> Found:
    """Send about n requests, as many to each route and mode, and collect what is wrong with the answers."""
    found, session = Found(), requests.Session()
    session.headers["Authorization"] = f"Bearer {key}"
    if document is None:
        document = session.get(f"{url}/openapi.json", timeout=ANSWER_S).json()
    made = schemathesis.openapi.from_dict(document)
    operations = [result.ok() for result in made.get_all_operations()]
    each = max(1, round(n / (2 * len(operations))))
    for i, operation in enumerate(operations):
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            for case in _cases(operation, mode, each, seed + i):
                _judge(session, url, key, operation.label, case, found)
    return found


def _cases(operation: Any, mode: GenerationMode, n: int, seed: int) -> Iterator[Any]:
    drawn: list[Any] = []

    @hypothesis.seed(seed)
    @hypothesis.settings(max_examples=n, **SETTINGS)
    @hypothesis.given(operation.as_strategy(generation_mode=mode))
    def collect(case: Any) -> None:
        drawn.append(case)

    try:
        collect()
    except hypothesis.errors.Unsatisfiable:
        return  # nothing about this route can be broken
    yield from drawn


def _judge(session: requests.Session, url: str, key: str, label: str, case: Any, found: Found) -> None:
    sent = case.as_transport_kwargs(base_url=url, headers={"Authorization": f"Bearer {key}"})
    found.n += 1
    try:
        with session.request(**sent, stream=True, timeout=ANSWER_S, allow_redirects=False) as answer:
            status = answer.status_code
            # A stream of events or log lines has no end; its head is the answer.
            is_endless = status == 200 and "Content-Length" not in answer.headers
            raw = b"" if is_endless else answer.content
    except requests.RequestException as error:
        if isinstance(error, requests.exceptions.InvalidHeader | UnicodeError | ValueError):
            return  # the client itself refuses to send it
        found.faults.append(f"{label}: no answer ({type(error).__name__}) to {_shown(sent)}")
        return
    except (UnicodeError, ValueError):
        return
    found.statuses[label, status] += 1
    may_come_back = status in (503, 504) and "Retry-After" in answer.headers
    if status >= 500 and status != 501 and not may_come_back:
        found.faults.append(f"{label}: {status} {raw[:200]!r} to {_shown(sent)}")
    elif status >= 400 and not _is_ours(raw, case.method):
        found.faults.append(f"{label}: {status} in a foreign shape {raw[:200]!r} to {_shown(sent)}")


def _is_ours(raw: bytes, method: str) -> bool:
    if method.upper() == "HEAD":
        return True
    try:
        error = json.loads(raw)["error"]
        return isinstance(error["message"], str) and isinstance(error["type"], str)
    except (ValueError, KeyError, TypeError):
        return False


def _shown(sent: dict[str, Any]) -> str:
    names = ("method", "url", "params", "json", "data")
    return repr({name: sent[name] for name in names if sent.get(name)})[:600]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--url", required=True)
    parser.add_argument("--key-file", type=Path, required=True)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    lines = (line.split() for line in args.key_file.read_text().splitlines())
    key = next(words[1] for words in lines if words[0] == "admin")
    began = monotonic()
    found = hunt(args.url, key, n=args.requests, seed=args.seed)
    totals: Counter[int] = Counter()
    for (_, status), n in found.statuses.items():
        totals[status] += n
    print(f"{found.n} requests in {monotonic() - began:.0f} s, statuses {dict(sorted(totals.items()))}")
    for label, status in sorted(found.statuses):
        if status >= 500:
            print(f"  {label}: {status} x {found.statuses[label, status]}")
    for fault in found.faults[:50]:
        print(f"FAULT {fault}")
    print(f"{len(found.faults)} faults")
    return 1 if found.faults else 0


if __name__ == "__main__":
    sys.exit(main())
