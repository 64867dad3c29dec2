"""Text that comes in tokens: whole characters, stop strings over token borders, and nothing sent that is taken back."""

import random
from collections.abc import Sequence

import pytest

from engine.errors import InvalidParameter
from engine.tokenizer.stream import TextStream
from engine.tokenizer.vocab import Vocab
from tests.tiny import byte_alphabet

ALPHABET = byte_alphabet()


def vocab(pieces: Sequence[bytes]) -> Vocab:
    """One token for each piece, and a control token after them."""
    tokens = ["".join(ALPHABET[b] for b in piece) for piece in pieces]
    return Vocab(
        {
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.tokens": [*tokens, "<|mark|>"],
            "tokenizer.ggml.token_type": [1] * len(tokens) + [3],
        }
    )


def deltas(pieces: Sequence[bytes], stop: Sequence[str] = ()) -> tuple[list[str], str | None]:
    """What each token sends and, if no stop string came, what the end sends."""
    stream = TextStream(vocab(pieces), stop)
    out: list[str] = []
    for i in range(len(pieces)):
        out.append(stream.push(i))
        if stream.stopped is not None:
            return out, stream.stopped
    return [*out, stream.finish()], stream.stopped


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        # a character of four bytes in four tokens
        (("486920", "f0", "9f", "98", "80", "21"), ["Hi ", "", "", "", "😀", "!", ""]),
        # a token that ends one character and begins the next
        (("e4", "bda0e5a5", "bd"), ["", "你", "好", ""]),
        # a joined emoji is three characters: each comes when it is whole
        (("f09f91", "a8e280", "8df09f", "91a9"), ["", "👨", "\u200d", "👩", ""]),
        # the limit ends inside a character: one U+FFFD, not three
        (("6f6b20", "f09f98"), ["ok ", "", "\ufffd"]),
        # a byte that is never valid does not hold up what follows
        (("61", "ff", "62"), ["a", "\ufffd", "b", ""]),
        # an unfinished character followed by text: known to be broken as soon as the text comes
        (("f09f", "78", "f09f9880"), ["", "\ufffdx", "😀", ""]),
        # continuation bytes without a start: one each
        (("8080", "6f6b"), ["\ufffd\ufffd", "ok", ""]),
        # overlong and surrogate encodings are no characters
        (("c080", "eda080", "f4908080"), ["\ufffd" * 2, "\ufffd" * 3, "\ufffd" * 4, ""]),
        (("00", "0a"), ["\x00", "\n", ""]),
    ],
)
def test_characters_come_whole_and_at_once(pieces: tuple[str, ...], expected: list[str]) -> None:
    assert deltas([bytes.fromhex(p) for p in pieces])[0] == expected


def test_any_bytes_cut_anywhere_give_the_text_of_the_whole() -> None:
    """Joined pieces of a stream equal the plain answer, whatever the bytes and the borders."""
    rng = random.Random(3)
    for _ in range(500):
        raw = b"".join(
            rng.choice([rng.randbytes(2), "é😀你a\u200d".encode(), b"\xf0\x9f", b"ok"])
            for _ in range(rng.randint(1, 8))
        )
        cuts = sorted(rng.sample(range(len(raw) + 1), k=min(5, len(raw) + 1)))
        pieces = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
        assert "".join(deltas([p for p in pieces if p])[0]) == raw.decode("utf-8", "replace")


@pytest.mark.parametrize(
    ("pieces", "stop", "expected", "hit"),
    [
        # over three tokens
        ((" L", " M N", " O", " P", " Q", " R"), ["O P Q"], [" L", " M N", " ", "", ""], "O P Q"),
        # from the middle of a token into the middle of the next
        (("Hi", "!\n\nUser", ": x"), ["\n\nUser:"], ["Hi", "!", ""], "\n\nUser:"),
        # nothing of the held text is sent
        (("ABC", "DEF", "G", "HI", "J", "K"), ["DEFGHIJ"], ["ABC", "", "", "", ""], "DEFGHIJ"),
        # text before the stop in the same token is kept
        (("sky on Mars", "?\n", "x"), ["\n"], ["sky on Mars", "?"], "\n"),
        # the earliest in the text wins, not the first of the list
        (("one END two", " STOP"), ["STOP", "END"], ["one "], "END"),
        # two at one place: the longer one is named, the text is the same
        (("x END!", "y"), ["END!", "END"], ["x "], "END!"),
        # what looked like a stop and was none comes late but whole
        (("a<", "b<s", "to", "q", "<st"), ["<stop>"], ["a", "<b", "", "<stoq", "", "<st"], None),
        # a stop whose beginning repeats: the first try fails inside the text that the second one needs
        (("a", "a", "a", "b", "c"), ["aab"], ["", "", "a", ""], "aab"),
        # a stop string of several bytes a character, cut inside one
        (("ok", "好", "！"), ["好！"], ["ok", "", ""], "好！"),
        # none comes
        (("a", "b"), ["zz"], ["a", "b", ""], None),
    ],
)
def test_stop_strings(pieces: tuple[str, ...], stop: list[str], expected: list[str], hit: str | None) -> None:
    if hit is None and len(expected) == len(pieces):
        expected = [*expected, ""]
    assert deltas([p.encode() for p in pieces], stop) == (expected, hit)


def test_a_stop_string_over_cut_characters_is_found() -> None:
    raw = "Antwort。Ende".encode()
    assert deltas([bytes([b]) for b in raw], ["。E"]) == ([*"Antwort", *[""] * 4], "。E")


def test_any_cut_stops_with_the_token_that_completes_a_stop_string() -> None:
    """The slow way: after each token look for every stop string in the whole text so far, the earliest place wins."""
    rng = random.Random(5)
    for _ in range(400):
        text = "".join(rng.choices("abé", k=12))
        stops = ["".join(rng.choices("abé", k=rng.randint(1, 4))) for _ in range(rng.randint(1, 3))]
        raw = text.encode()
        cuts = sorted(rng.sample(range(1, len(raw)), k=4))
        pieces = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
        out, hit = deltas(pieces, stops)
        so_far = [b"".join(pieces[:n]).decode("utf-8", "ignore") for n in range(1, len(pieces) + 1)]
        found = [min((at for s in stops if (at := t.find(s)) >= 0), default=None) for t in so_far]
        first = next((at for at in found if at is not None), None)
        assert "".join(out) == text[:first]
        assert (hit is not None) == (first is not None)


def test_nothing_comes_after_a_stop() -> None:
    stream = TextStream(vocab([b"a END b", b"more"]), ["END"])
    assert (stream.push(0), stream.push(1), stream.finish(), stream.stopped) == ("a ", "", "", "END")


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="empty") as caught:
        TextStream(vocab([b"a"]), ["x", ""])
    assert caught.value.param == "stop"


def test_control_tokens_are_left_out_or_named() -> None:
    assert TextStream(vocab([b"a"])).push(1) == ""
    assert TextStream(vocab([b"a"]), skip_special=False).push(1) == "<|mark|>"


def test_a_control_token_inside_a_character_does_not_break_it() -> None:
    stream = TextStream(vocab([b"\xc3", b"\xa9"]))
    assert [stream.push(0), stream.push(2), stream.push(1)] == ["", "", "é"]


def test_many_stop_strings_and_a_long_answer_stay_quick() -> None:
    """Held text is never longer than a stop string, so an answer costs its length."""
    stream = TextStream(vocab([b"a" * 50, b"b"]), ["a" * 199 + "c", *(f"stop{i}" for i in range(15))])
    out = [stream.push(i % 2) for i in range(4000)]
    assert len("".join([*out, stream.finish()])) == 2000 * 51
