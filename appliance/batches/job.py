"""One batch as a document: its states, which only go forward, its options and what clients see. Not here: doing it.

validating ──▶ in_progress ──▶ finalizing ──▶ completed
    │ failed        │ cancelling ──▶ cancelled, expired
"""

import time
import uuid
from dataclasses import dataclass
from typing import Any

from appliance.batches.window import Window
from engine.errors import InvalidParameter

STATUSES = ("validating", "in_progress", "cancelling", "finalizing", "completed", "failed", "expired", "cancelled")
ENDED = ("completed", "failed", "expired", "cancelled")
UNFINISHED = tuple(status for status in STATUSES if status not in ENDED)
AHEAD = {
    "validating": ("in_progress", "failed", "cancelling", "expired"),
    "in_progress": ("finalizing", "cancelling", "expired", "failed"),
    "cancelling": ("cancelled",),
    "finalizing": ("completed",),
}
MOST_ERRORS = 100
"""Bad lines that the batch itself lists; all are in its error file."""
KEYS = ("colibri_window", "colibri_profile", "colibri_expires_hours", "colibri_golden", "colibri_golden_share")
HIDDEN = ("owner", "sha256", "about")
Doc = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Options:
    """What a batch's metadata asks of us, see KEYS; `golden` is the id of a file of rows with known answers, of which
    the share `golden_share` must come out right before the batch may work."""

    window: Window | None = None
    profile: str | None = None
    expires_s: float | None = None
    golden: str | None = None
    golden_share: float = 0.9

    @classmethod
    def read(cls, metadata: dict[str, str]) -> "Options":
        """Raises InvalidParameter for a colibri_ key nobody reads, or a wrong value."""
        if any(key.startswith("colibri_") and key not in KEYS for key in metadata):
            text = f"metadata has a colibri_ key that nobody reads; known are {', '.join(KEYS)}"
            raise InvalidParameter(text, param="metadata")
        window, hours = metadata.get("colibri_window"), _number(metadata, "colibri_expires_hours", 8784)
        share = _number(metadata, "colibri_golden_share", 1)
        return cls(
            None if window is None else Window.parse(window), metadata.get("colibri_profile"),
            None if hours is None else hours * 3600, metadata.get("colibri_golden"), 0.9 if share is None else share,
        )  # fmt: skip


def _number(metadata: dict[str, str], key: str, most: float) -> float | None:
    text = metadata.get(key)
    try:
        value = None if text is None else float(text)
    except ValueError:
        value = 0.0
    if value is not None and not 0 < value <= most:
        raise InvalidParameter(f"{key} is a number over 0 and at most {most}, as a string", param="metadata")
    return value


def new_batch(owner: str, endpoint: str, input_file_id: str, window: str, metadata: dict[str, str] | None) -> Doc:
    """The document of a batch that has just been asked for."""
    options, now = Options.read(metadata or {}), int(time.time())
    return {
        "id": f"batch_{uuid.uuid4().hex}", "object": "batch", "endpoint": endpoint, "model": None, "errors": None,
        "input_file_id": input_file_id, "completion_window": window, "status": "validating", "output_file_id": None,
        "error_file_id": None, "created_at": now, "in_progress_at": None,
        "expires_at": None if options.expires_s is None else now + int(options.expires_s),
        "finalizing_at": None, "completed_at": None, "failed_at": None, "expired_at": None, "cancelling_at": None,
        "cancelled_at": None, "request_counts": {"total": 0, "completed": 0, "failed": 0}, "metadata": metadata,
        "usage": None, "owner": owner, "sha256": None, "about": None,
    }  # fmt: skip


def advanced(doc: Doc, status: str, **more: Any) -> Doc:
    """The document in its next state, stamped."""
    assert status in AHEAD.get(doc["status"], ()), f"{doc['status']} -> {status}"
    return {**doc, "status": status, f"{status}_at": int(time.time()), **more}


def listed(problems: list[Doc]) -> Doc:
    """The `errors` of a batch."""
    return {"object": "list", "data": problems[:MOST_ERRORS]}


def public(doc: Doc, colibri: Doc | None = None) -> Doc:
    """As clients see it, with what is ours beside it."""
    shown = {key: value for key, value in doc.items() if key not in HIDDEN}
    ours = {**(doc.get("about") or {}), **(colibri or {})}
    return {**shown, "colibri": ours} if ours else shown
