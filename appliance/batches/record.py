"""The lines of a batch's output and error files, in OpenAI's shape. Not here: writing them.

Nothing in a line depends on when or how often the batch was run, so that a run cut five times gives the bytes of an
undisturbed one.
"""

import hashlib
from typing import Any

from appliance.batches.rows import Problem, Row


def request_id(sha256: str, line: int) -> str:
    """The name of a line's answer: of the input's digest and the line, not of the moment."""
    return hashlib.sha256(f"{sha256}:{line}".encode()).hexdigest()[:32]


def answer_record(sha256: str, row: Row, status: int, body: dict[str, Any]) -> dict[str, Any]:
    """One answered row. With a status of 400 or more it is one for the error file, and tells its line."""
    name = request_id(sha256, row.line)
    response = {"status_code": status, "request_id": f"req_{name}", "body": body}
    error = None
    if status >= 400:
        told = body.get("error")
        found = told if isinstance(told, dict) else {}
        error = _error(found.get("code"), found.get("message"), found.get("param"), row.line)
    return {"id": f"batch_req_{name}", "custom_id": row.custom_id, "response": response, "error": error}


def unanswered_record(sha256: str, line: int, custom_id: str, code: str, message: str) -> dict[str, Any]:
    """A row that was not computed: the batch was cancelled, or its time was over."""
    name = request_id(sha256, line)
    return {"id": f"batch_req_{name}", "custom_id": custom_id, "response": None,
            "error": _error(code, message, None, line)}  # fmt: skip


def problem_record(sha256: str, problem: Problem) -> dict[str, Any]:
    """A line that is no row."""
    name = request_id(sha256, problem.line)
    error = _error(problem.code, problem.message, problem.param, problem.line)
    return {"id": f"batch_req_{name}", "custom_id": problem.custom_id, "response": None, "error": error}


def _error(code: Any, message: Any, param: Any, line: int) -> dict[str, Any]:
    return {"code": code or "internal_error", "message": message or "no answer", "param": param, "line": line}
