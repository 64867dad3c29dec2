"""A batch's input file, checked whole before the first answer without holding it in memory. Not here: order, answers.

A line that is no good row becomes a `Problem` with its number; the others are answered. Only what is wrong with the
file as a whole (empty, too large, not one good row) is an error of its own.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from appliance.strict_json import InvalidJson, json_name, parse_object
from engine.errors import ColibriError, RequestError

ENDPOINTS = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/score")
MAX_ID = 512
"""Characters of a custom_id."""
KNOWN = frozenset({"custom_id", "method", "url", "body"})
Check = Callable[[str, dict[str, Any]], None]
"""Raises the ColibriError that a body of this url would meet whatever the model."""


class BadInput(RequestError):
    """The file as a whole cannot be a batch's input; `problems` are its bad lines where those are the reason."""

    code = "invalid_file"

    def __init__(self, message: str, code: str = "invalid_file", problems: "tuple[Problem, ...]" = ()) -> None:
        super().__init__(message)
        self.code, self.problems = code, problems


@dataclass(frozen=True, slots=True)
class Caps:
    """Most lines, most bytes, most bytes of one line; the first two are OpenAI's."""

    lines: int = 50_000
    bytes: int = 200 << 20
    line_bytes: int = 8 << 20


@dataclass(frozen=True, slots=True)
class Row:
    """One request: `line` counts from 1, `digest` is of what is asked (url and body), so equal rows have equal ones."""

    line: int
    custom_id: str
    url: str
    body: dict[str, Any]

    @property
    def digest(self) -> bytes:
        return _sha(self.url, self.body)


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a line; `custom_id` where it has one that can be told."""

    line: int
    code: str
    message: str
    param: str | None = None
    custom_id: str | None = None

    def document(self) -> dict[str, Any]:
        """As a batch's `errors.data` shows it."""
        return {"code": self.code, "message": self.message, "param": self.param, "line": self.line}


@dataclass(frozen=True, slots=True)
class Ref:
    """Where a good row stands, and what its order is made of: `bucket` is of all but the row's own text, `weight` the
    bytes of that text. One that `is_drawn` asks for chance, so that its equals want answers of their own."""

    line: int
    offset: int
    size: int
    custom_id: str
    digest: bytes
    bucket: bytes
    weight: int
    is_drawn: bool = False


@dataclass(slots=True)
class Scan:
    """A file that has been looked at: `refs` and `problems` are its lines that are not blank, in order."""

    sha256: str
    n_bytes: int
    n_lines: int = 0
    refs: list[Ref] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def scan(path: Path, endpoint: str | None = None, caps: Caps | None = None, check: Check | None = None) -> Scan:
    """Look at every line. With an `endpoint` all rows must be of that one, else each of any of ENDPOINTS.

    Raises BadInput when there is not one good row or more than the caps allow, OSError as the disk does.
    """
    caps = caps or Caps()
    size = path.stat().st_size
    if size > caps.bytes:
        raise BadInput(f"the file has {size:,} bytes; at most {caps.bytes:,} are taken: split it", "file_too_large")
    found, sha = Scan("", size), hashlib.sha256()
    seen: dict[str, int] = {}
    with path.open("rb") as file:
        for line, offset, raw, whole in _lines(file, caps.line_bytes, sha):
            if raw.isspace():
                continue
            found.n_lines += 1
            if found.n_lines > caps.lines:
                text = f"the file has more than the {caps.lines:,} rows a batch may have; split it"
                raise BadInput(text, "too_many_rows")
            try:
                if not whole:
                    _fault("line_too_long", f"the line has more than the {caps.line_bytes:,} bytes that are read")
                ref = _ref(line, offset, raw, endpoint, seen, check)
            except _Bad as bad:
                found.problems.append(bad.problem(line, raw, whole))
            else:
                seen[ref.custom_id] = line
                found.refs.append(ref)
    found.sha256 = sha.hexdigest()
    if not found.n_lines:
        raise BadInput("the file has no rows; send one JSON object per line", "empty_file")
    if not found.refs:
        first = found.problems[0]
        text = f"none of the file's {found.n_lines:,} lines is a good row; line {first.line}: {first.message}"
        raise BadInput(text, problems=tuple(found.problems))
    return found


def read_row(fd: int, ref: Ref) -> Row:
    """The row again, in any thread; raises BadInput when the file is not the one that was scanned, OSError."""
    try:
        value = parse_object(os.pread(fd, ref.size, ref.offset), "line")
        row = Row(ref.line, value["custom_id"], value["url"], value["body"])
        if row.custom_id == ref.custom_id and row.digest == ref.digest:
            return row
    except (InvalidJson, LookupError, TypeError):
        pass
    raise BadInput(f"line {ref.line} of the input has changed since the batch began", "input_changed")


class _Bad(Exception):
    """What is wrong with the line that is being looked at."""

    def __init__(self, code: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.param = code, message, param

    def problem(self, line: int, raw: bytes, whole: bool) -> Problem:
        custom_id = None
        if whole:
            try:
                given = json.loads(raw)["custom_id"]
                custom_id = given if isinstance(given, str) and 0 < len(given) <= MAX_ID else None
                (custom_id or "").encode()
            except (ValueError, LookupError, TypeError, RecursionError):
                custom_id = None
        return Problem(line, self.code, self.message, self.param, custom_id)


def _fault(code: str, message: str, param: str | None = None) -> None:
    raise _Bad(code, message, param)


def _lines(file: BinaryIO, most: int, sha: Any) -> Iterator[tuple[int, int, bytes, bool]]:
    """(number, offset, bytes, whole) of each line; of one that is too long only the beginning, and not whole."""
    number = offset = 0
    while raw := file.readline(most + 1):
        sha.update(raw)
        number += 1
        whole = len(raw) <= most or raw.endswith(b"\n")
        yield number, offset, raw, whole
        offset += len(raw)
        while not raw.endswith(b"\n") and (raw := file.readline(1 << 20)):
            sha.update(raw)
            offset += len(raw)


def _ref(line: int, offset: int, raw: bytes, endpoint: str | None, seen: dict[str, int], check: Check | None) -> Ref:
    try:
        value = parse_object(raw, "line")
    except InvalidJson as error:
        raise _Bad("invalid_json_line", error.message) from None
    body = _body(value, endpoint)
    custom_id = value["custom_id"]
    if custom_id in seen:
        text = f"the custom_id of this line is that of line {seen[custom_id]}; each may stand once"
        _fault("duplicate_custom_id", text, "custom_id")
    if check is not None:
        try:
            check(value["url"], body)
        except ColibriError as error:
            raise _Bad(error.code, error.message, f"body.{error.param}" if error.param else "body") from None
    own, rest = split(body)
    drawn = body.get("seed") is None and bool(body.get("temperature"))
    return Ref(line, offset, len(raw), custom_id, _sha(value["url"], body), _sha(value["url"], rest), own, drawn)


def _body(value: dict[str, Any], endpoint: str | None) -> dict[str, Any]:
    """The body of a line whose own fields are right."""
    for name in ("custom_id", "method", "url", "body"):
        if name not in value:
            text = f"the line has no {name}; a row has custom_id, method, url, body"
            _fault("missing_required_parameter", text, name)
    for name in ("custom_id", "method", "url"):
        if not isinstance(value[name], str) or not value[name]:
            what = "an empty string" if value[name] == "" else f"a JSON {json_name(value[name])}"
            _fault("invalid_type", f"{name} is {what}; a string was expected", name)
    if unknown := sorted(value.keys() - KNOWN):
        _fault("unsupported_parameter", f"a row has no field {unknown[0][:40]!r}", unknown[0][:40])
    if len(value["custom_id"]) > MAX_ID:
        text = f"custom_id has {len(value['custom_id'])} characters; at most {MAX_ID} are taken"
        _fault("invalid_value", text, "custom_id")
    if value["method"] != "POST":
        _fault("invalid_method", "the method of a row is POST", "method")
    if value["url"] not in ((endpoint,) if endpoint else ENDPOINTS):
        known = f"the batch's endpoint is {endpoint}" if endpoint else f"a row's url is one of {', '.join(ENDPOINTS)}"
        _fault("mismatched_endpoint" if value["url"] in ENDPOINTS else "invalid_url", f"{known}", "url")
    body = value["body"]
    if not isinstance(body, dict):
        _fault("invalid_type", f"body is a JSON {json_name(body)}; an object was expected", "body")
    if body.get("stream"):
        _fault("unsupported_value", "a batch's answers are not streamed; leave stream out", "body.stream")
    assert isinstance(body, dict)
    return body


def split(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """(bytes of the row's own text, the body without it): the last message, the prompt, the input or the context."""
    rest = dict(body)
    messages = rest.get("messages")
    if isinstance(messages, list) and messages:
        rest["messages"] = messages[:-1]
        return _weight(messages[-1]), rest
    own = next((name for name in ("prompt", "input", "context") if name in rest), None)
    return (0, rest) if own is None else (_weight(rest.pop(own)), rest)


def _weight(value: Any) -> int:
    return len(value.encode()) if isinstance(value, str) else len(_canonical(value))


def _canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def _sha(url: str, body: dict[str, Any]) -> bytes:
    return hashlib.sha256(url.encode() + b"\0" + _canonical(body)).digest()
