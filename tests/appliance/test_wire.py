"""Frames, whole and broken, through real sockets; and the JSON of what they carry."""

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from appliance.frames import (
    done_frame,
    error_value,
    generate_frame,
    piece_frame,
    read_done,
    read_error,
    read_generate,
    read_piece,
)
from appliance.request import Done, GenerateRequest, Piece, TokenLogprob
from appliance.wire import MAX_FRAME, PROTOCOL, Line, Unpacker, WireError, check_hello, pack, read_frame
from engine.errors import BadModelFile, ColibriError, ContextLengthExceeded
from engine.sampling import Sampling


@pytest.fixture
def pair() -> Iterator[tuple[Line, socket.socket]]:
    ours, theirs = socket.socketpair()
    line = Line(ours)
    yield line, theirs
    line.close()
    theirs.close()


def through(frame: dict[str, Any]) -> dict[str, Any]:
    """As it arrives on the other side."""
    return next(iter(Unpacker().feed(pack(frame))))


def test_frames_survive_any_chopping() -> None:
    frames: list[dict[str, Any]] = [{"type": "a", "text": "näh 🐦 \ud800"}, {"type": "b", "n": 1.5}, {"type": "c"}]
    data = b"".join(pack(f) for f in frames)
    for size in (1, 2, 3, 7, len(data)):
        unpacker = Unpacker()
        got = [f for i in range(0, len(data), size) for f in unpacker.feed(data[i : i + size])]
        assert got == frames


@pytest.mark.parametrize(
    "data",
    [
        b"\0\0\0\0",
        b"\0\0\0\1x",
        (MAX_FRAME + 1).to_bytes(4, "big"),
        b"\xff\xff\xff\xff",
        b"\0\0\0\2[]",
        b"\0\0\0\2{}",
        b"\0\0\0\x0a" + b'{"type":1}',
        b"\0\0\0\4\xff\xfe\xfd\xfc",
        b"\0\0\0\x16" + b'{"type":"a","x":NaN  }',
        (20_000).to_bytes(4, "big") + b"[" * 20_000,
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
async def test_nonsense_is_refused_before_it_costs_memory(data: bytes) -> None:
    with pytest.raises(WireError):
        list(Unpacker().feed(data))
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    with pytest.raises(WireError):
        await read_frame(reader)


def test_a_frame_too_large_or_without_json_is_not_sent() -> None:
    with pytest.raises(WireError, match="above the limit"):
        pack({"type": "piece", "text": "x" * MAX_FRAME})
    with pytest.raises(WireError, match="JSON"):
        pack({"type": "piece", "logprob": float("nan")})


async def test_hanging_up_in_the_middle_of_a_frame_is_an_end() -> None:
    for data in (b"", b"\0\0", pack({"type": "a"})[:-1]):
        reader = asyncio.StreamReader()
        reader.feed_data(data)
        reader.feed_eof()
        assert await read_frame(reader) is None


def test_another_protocol_number_is_named() -> None:
    assert check_hello({"type": "hello", "protocol": PROTOCOL})
    with pytest.raises(WireError, match="different installations"):
        check_hello({"type": "hello", "protocol": PROTOCOL + 1})
    for frame in (None, {"type": "beat"}):
        with pytest.raises(WireError, match="expected a hello"):
            check_hello(frame)


def test_posting_never_waits_for_a_reader(pair: tuple[Line, socket.socket]) -> None:
    """8 MB into a socket that nobody reads: every post returns, and all of it arrives once somebody does."""
    line, theirs = pair
    for n in range(128):
        line.post({"type": "piece", "n": n, "text": "x" * 65536})
    got: list[int] = []

    def read() -> None:
        unpacker = Unpacker()
        while len(got) < 128:
            got.extend(frame["n"] for frame in unpacker.feed(theirs.recv(1 << 20)))

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(10_000):
        line.pump(0.01)
        if not reader.is_alive():
            break
    reader.join(20)
    assert got == list(range(128))


def test_pump_wakes_for_a_frame_a_wake_and_a_post(pair: tuple[Line, socket.socket]) -> None:
    line, theirs = pair
    theirs.sendall(pack({"type": "ack"}) + pack({"type": "cancel"}))
    assert [f["type"] for f in line.pump(20)] == ["ack", "cancel"]
    threading.Timer(0.05, line.wake).start()
    assert line.pump(20) == []


def test_the_other_end_gone_is_told_once_by_pump(pair: tuple[Line, socket.socket]) -> None:
    line, theirs = pair
    theirs.sendall(pack({"type": "ack"}))
    theirs.close()
    with pytest.raises(ConnectionError):
        line.pump(20)
    line.post({"type": "beat"})
    line.drain(1)


def test_drain_waits_for_a_late_reader_only_so_long(pair: tuple[Line, socket.socket]) -> None:
    line, theirs = pair
    line.post({"type": "piece", "text": "x" * (4 << 20)})
    line.drain(0.05)
    assert theirs.recv(10)


def test_a_request_arrives_as_it_was() -> None:
    request = GenerateRequest(
        id="chatcmpl-1",
        prompt_ids=[1, 2, 3],
        sampling=Sampling(temperature=0.0, seed=2**63, logit_bias={5: -100.0, 17: 1.5}),
        model="m",
        max_tokens=9,
        stop=("\n\n", "ENDE 🛑"),
        n_logprobs=3,
        lane="batch",
        deadline_ms=1000,
    )
    again = read_generate(through(generate_frame(request)))
    assert again == request
    assert dict(again.sampling.logit_bias) == {5: -100.0, 17: 1.5}


def test_a_broken_generate_frame_is_a_wire_error() -> None:
    good = through(generate_frame(GenerateRequest(id="1", prompt_ids=[1], sampling=Sampling(), model="m")))
    for broken in ({"sampling": {"colour": 1}}, {"sampling": 3}, {"stop": 5}):
        with pytest.raises(WireError):
            read_generate({**good, **broken})
    del good["prompt_ids"]
    with pytest.raises(WireError):
        read_generate(good)


def test_a_piece_keeps_every_byte() -> None:
    rival = TokenLogprob(2, bytes(range(256)), -9999.0)
    logprobs = [TokenLogprob(1, "é".encode()[:1], -0.25, (rival,))]
    frame = through(piece_frame("r", "é", [1], logprobs))
    assert read_piece(frame) == Piece("é", [1], logprobs)


def test_done_gains_the_time_in_the_queue() -> None:
    done = Done("stop", "END", 3, 1, 7, {"prompt_n": 2}, 11)
    again = read_done(through(done_frame("r", done)), queue_ms=12.5)
    assert (again.finish_reason, again.stop_string, again.seed) == ("stop", "END", 11)
    assert again.timings == {"prompt_n": 2, "queue_ms": 12.5}


def test_an_error_arrives_as_what_it_was_or_its_nearest_kin() -> None:
    class OddFile(BadModelFile):
        exit_code, code = 3, "odd_file"

    again = read_error(json.loads(json.dumps(error_value(OddFile("tensor 3 is odd", param="model")))))
    assert type(again) is BadModelFile
    assert (again.message, again.param, again.code, again.exit_code) == ("tensor 3 is odd", "model", "odd_file", 3)
    full = read_error(error_value(ContextLengthExceeded("too long", n_ctx=256)))
    assert isinstance(full, ContextLengthExceeded)
    assert (full.status, full.extra) == (400, {"n_ctx": 256})
    assert (
        type(read_error({**error_value(ColibriError("x")), "kinds": ["Unheard", "os", "ColibriError"]})) is ColibriError
    )
