"""The pieces of one answer on their way to a reader who may be slow. Not here: sockets, tokens (session.py).

At most WINDOW pieces are under way unacknowledged. Beyond that the text is held here and leaves in merged pieces as the
reader takes some, so the engine never waits for a reader, and a reader never costs more than HELD_BYTES.
"""

import threading
from collections.abc import Callable

from appliance.frames import piece_frame
from appliance.request import TokenLogprob
from appliance.wire import Frame
from engine.errors import ColibriError

WINDOW = 32
MERGED_TOKENS = 256
"""Most tokens in one merged piece: with 20 alternatives each, far below the frame limit."""
HELD_BYTES = 32 << 20
TOKEN_BYTES = 64
"""What a token with its logprob is counted as, in JSON and in memory alike."""


class SlowReader(ColibriError):
    """The answer outgrew what is held for a reader who does not read."""

    code = "slow_reader"


class Outbox:
    """Fed by the engine thread (`push`, `flush`), relieved by the main thread (`ack`)."""

    def __init__(self, post: Callable[[Frame], None], request_id: str) -> None:
        self._post = post
        self._id = request_id
        self._lock = threading.Lock()
        self._credit = WINDOW
        self._held: list[tuple[str, list[int], list[TokenLogprob]]] = []
        self._held_bytes = 0

    def push(self, text: str, ids: list[int], logprobs: list[TokenLogprob]) -> None:
        """Send or hold a piece; raises SlowReader when HELD_BYTES are held already."""
        with self._lock:
            if self._credit and not self._held:
                self._credit -= 1
                self._post(piece_frame(self._id, text, ids, logprobs))
                return
            if self._held_bytes > HELD_BYTES:
                raise SlowReader(f"the reader left {self._held_bytes:,} bytes of the answer unread; read faster")
            self._held.append((text, ids, logprobs))
            self._held_bytes += _size(text, ids, logprobs)

    def ack(self, n: int) -> None:
        """The reader has taken `n` pieces."""
        with self._lock:
            self._credit = min(WINDOW, self._credit + n)
            while self._credit and self._held:
                self._credit -= 1
                self._send_merged()

    def flush(self) -> None:
        """The answer is complete: send what is held, whatever the credit; it is bounded and the engine is done."""
        with self._lock:
            while self._held:
                self._send_merged()

    def _send_merged(self) -> None:
        text: list[str] = []
        ids: list[int] = []
        logprobs: list[TokenLogprob] = []
        taken = 0
        for piece in self._held:
            if taken and len(ids) + len(piece[1]) > MERGED_TOKENS:
                break
            taken += 1
            text.append(piece[0])
            ids += piece[1]
            logprobs += piece[2]
            self._held_bytes -= _size(*piece)
        del self._held[:taken]
        self._post(piece_frame(self._id, "".join(text), ids, logprobs))


def _size(text: str, ids: list[int], logprobs: list[TokenLogprob]) -> int:
    return len(text) + TOKEN_BYTES * (len(ids) + sum(len(lp.top) for lp in logprobs))
