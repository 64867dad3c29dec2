"""What a swap, or a word about one, is refused with. Not here: who refuses (swapper.py), how a candidate fails."""

from engine.errors import ColibriError, RequestError


class SwapRunning(ColibriError):
    """One at a time; `swap_id` in `extra` is the one under way."""

    status, type, code = 409, "conflict_error", "profile_switch_in_progress"


class NoSuchSwap(RequestError):
    status, code = 404, "swap_not_found"


class SwapEnded(ColibriError):
    status, type, code = 409, "conflict_error", "swap_ended"


class TooLate(ColibriError):
    """It is being rolled back already."""

    status, type, code = 409, "conflict_error", "swap_too_late"


class KeyReused(RequestError):
    code = "idempotency_key_reused"
