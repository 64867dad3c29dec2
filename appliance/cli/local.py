"""The model in this very process, for run, chat, bench and logits. Not here: the worker process that serve starts."""

import os
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from appliance.cli.background import Background
from appliance.cli.progress import Progress
from appliance.settings import Settings
from engine.errors import ColibriError, ContextLengthExceeded, UnsupportedModel, UsageError

if TYPE_CHECKING:
    from appliance.speech.speech import Speech
    from engine.generate import Engine
    from engine.gguf.reader import GgufFile
    from engine.sampling import Sampling
    from engine.spent import Spent
    from engine.text import Text

T = TypeVar("T")
# Longer than any context holds (a token is rarely over 8 bytes), and a pipe without an end must not eat the machine.
MOST_INPUT_BYTES = 256 << 20


class BadInputFile(ColibriError):
    """A prompt or token file that cannot be used."""

    status, exit_code, type, code = 400, 3, "invalid_request_error", "bad_input_file"


class Token(NamedTuple):
    """One generated token; `text` is what became printable with it, maybe nothing, maybe more than this token."""

    id: int
    text: str
    logprob: float | None
    top: list[tuple[int, float]]


class Prefill(NamedTuple):
    done: int
    total: int


class End(NamedTuple):
    """The last event: text that was held back, why it ended, llama-server's timings, the seed in use, what the prompt
    (its first token included) and the other tokens used up; None where nothing ran."""

    text: str
    finish_reason: str
    timings: dict[str, float]
    seed: int | None
    spent: "tuple[Spent, Spent] | None" = None


Event = Token | Prefill | End


class Local:
    """An engine and its text, owned by a background thread so that Ctrl-C is heard at once.

    What is wrong with the file is said before the engine is loaded; its vocabulary counts unless `with_text` is false.
    `is_served`: loaded as a service would, with room for the API process beside it.
    """

    def __init__(self, settings: Settings, with_text: bool = True, is_served: bool = False) -> None:
        path = settings.model_path()
        self.path = path
        self.header: GgufFile = _checked(path, settings, is_served)
        self.settings = settings
        if with_text:
            _ = self.text
        self._thread = Background()
        started = time.perf_counter()
        progress = Progress()
        try:
            self.engine: Engine = self._thread.call(lambda: _load(path, settings, progress, is_served))
        finally:
            progress.close()
        for note in self.engine.info.notes:
            print(f"note: {note}", file=sys.stderr)
        self.load_ms = (time.perf_counter() - started) * 1e3

    @property
    def text(self) -> "Text":
        """Vocabulary and chat template; opened when first asked for."""
        if not hasattr(self, "_text"):
            from appliance.chat_template import choose
            from engine.models.registry import architecture
            from engine.text import open_text

            text = open_text(self.header)
            choose(text, self.settings, architecture(self.header))
            self._text: Text = text
        return self._text

    def close(self) -> None:
        """Give the memory back."""
        self.call(self.engine.shutdown)

    def call(self, work: Callable[[], T]) -> T:
        """`work()` on the engine's thread."""
        return self._thread.call(work)

    def stream(self, work: Callable[[], Iterable[T]]) -> Generator[T, None, None]:
        """The items of `work()` from the engine's thread; leaving early cancels the running step."""
        return self._thread.stream(work, self.engine.cancel)

    def chat_ids(self, messages: list[dict[str, str]]) -> list[int]:
        """Token ids of a conversation in the model's own template; raises UnsupportedModel if it has none."""
        return self.chat(messages)[0]

    def chat(self, messages: list[dict[str, str]]) -> "tuple[list[int], Speech]":
        """As chat_ids(), and how the answer is to be read."""
        from appliance.templates import render_now

        text = self.text
        if text.chat_template is None:
            raise UnsupportedModel(
                "this model has no chat template; give it plain text with --raw, or a template with --chat-template"
            )
        vocab = text.vocab
        from appliance.shield import shielded

        given, mark = shielded(text, messages)
        rendered = render_now(text.chat_template, given, add_generation_prompt=True,
                              bos_token=text.name(vocab.bos_id), eos_token=text.name(vocab.eos_id))  # fmt: skip
        from appliance.speech.toolset import listen

        prompt, speech = listen(text.chat_template, rendered, None)
        return text.encode(prompt, add_special=True, parse_special=True, mark=mark), speech

    def generate(self, ids: Sequence[int], sampling: "Sampling", n_predict: int, *, stop: Sequence[str] = (),
                 n_logprobs: int = 0, shown: Sequence[int] = (),
                 ignore_eos: bool = False) -> Generator[Event, None, None]:  # fmt: skip
        """Generate until EOG (unless ignored), a stop string, `n_predict` tokens (-1: no such limit) or the context's
        end. Special tokens are not text, but those that are `shown`."""
        n_ctx = self.engine.info.n_ctx
        room = n_ctx - len(ids)
        if room < 1:
            raise ContextLengthExceeded(
                f"the prompt has {len(ids)} tokens and the context {n_ctx}; "
                "shorten the prompt or give a larger --ctx-size"
            )
        if not ids:
            raise BadInputFile("the prompt has no tokens; give some text")
        n = room if n_predict < 0 else min(n_predict, room)
        work = _Generation(self, list(ids), sampling, n, tuple(stop), n_logprobs, tuple(shown), ignore_eos)
        return self.stream(work.events)

    def facts(self) -> dict[str, Any]:
        """What `stats` says of the engine."""
        info = self.engine.info
        names = ("architecture", "n_ctx", "n_ctx_train", "n_params", "threads", "threads_batch", "batch_size",
                 "ubatch_size", "load_mode", "spec_type", "type_k", "type_v", "isa", "weights_bytes", "kv_bytes",
                 "pinned_bytes", "streamed_bytes", "ring_bytes", "model_digest")  # fmt: skip
        known = {name: getattr(info, name) for name in names}
        return {"model": self.path.name, **known, "load_ms": round(self.load_ms, 3)}


class _Generation(NamedTuple):
    local: Local
    ids: list[int]
    sampling: "Sampling"
    n_predict: int
    stop: tuple[str, ...]
    n_logprobs: int
    shown: tuple[int, ...]
    ignore_eos: bool

    def events(self) -> Iterator[Event]:
        from engine.tokenizer.stream import TextStream

        engine, vocab = self.local.engine, self.local.text.vocab
        eog_ids: frozenset[int] = frozenset() if self.ignore_eos else frozenset(vocab.eog_ids)
        stream = TextStream(vocab, stop=self.stop, after=self.ids[-1], shown=self.shown)
        start = first = last = time.perf_counter()
        if self.n_predict == 0:
            yield End("", "length", timings(len(self.ids), 0.0, 0, 0.0), self.sampling.seed)
            return
        n, finish = 0, None
        before = read = engine.spent()
        seq = engine.open(self.ids, self.sampling, self.n_predict, eog_ids, self.n_logprobs)
        try:
            while finish is None:
                out = engine.step(seq)
                if out.cancelled:
                    return
                if out.phase == "prefill":
                    yield Prefill(out.done, out.total)
                finish = out.finish
                for one in (out, *out.more):
                    if one.token is None:
                        break
                    last = time.perf_counter()
                    n += 1
                    if n == 1:
                        first, read = last, engine.spent()
                    text = "" if one.token in eog_ids else stream.push(one.token)
                    yield Token(one.token, text, one.logprob, one.top)
                    if stream.stopped is not None:
                        finish = "stop"
                        break
        finally:
            engine.close(seq)
        rest = "" if stream.stopped is not None else stream.finish()
        times = timings(len(self.ids), first - start, n, last - first)
        if seq.n_drafted:
            times |= {"draft_n": seq.n_drafted, "draft_n_accepted": seq.n_accepted}
        end = engine.spent()
        if (both := end.since(before)).read_bytes:
            times |= {"disk_ms": round(both.disk_ns / 1e6, 3), "disk_bytes": both.read_bytes}
        yield End(rest, finish, times, seq.seed, (read.since(before), end.since(read)))


def timings(prompt_n: int, prompt_s: float, predicted_n: int, predicted_s: float) -> dict[str, float]:
    """llama-server's names and borders: the prompt's time ends with the first token, the rest is prediction."""
    found: dict[str, float] = {"cache_n": 0}
    for name, n, seconds in (("prompt", prompt_n, prompt_s), ("predicted", predicted_n, predicted_s)):
        found[f"{name}_n"] = n
        found[f"{name}_ms"] = round(seconds * 1e3, 3)
        found[f"{name}_per_token_ms"] = round(seconds * 1e3 / n, 4) if n else 0.0
        found[f"{name}_per_second"] = round(n / seconds, 3) if seconds > 0 else 0.0
    return found


def read_text(path: Path | None) -> str:
    """A file's text, stdin's for None; raises BadInputFile for what is not there or not UTF-8."""
    name = str(path) if path else "stdin"
    try:
        with path.open("rb") if path else nullcontext(sys.stdin.buffer) as file:
            data = file.read(MOST_INPUT_BYTES + 1)
    except OSError as error:
        raise BadInputFile(f"{name} cannot be read: {error.strerror}") from None
    if len(data) > MOST_INPUT_BYTES:
        raise BadInputFile(f"{name} holds more than {MOST_INPUT_BYTES >> 20} MiB, which no context has room for")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInputFile(f"{name} is not UTF-8 text: byte {error.start} is 0x{data[error.start]:02x}") from None


def checked_text(text: str, name: str) -> str:
    """The text of an argument or a line, whatever the locale; raises UsageError if it is not UTF-8.

    Bytes that the locale does not know come as lone surrogates: in the C locale everything that is not ASCII.
    """
    if not any("\ud800" <= char <= "\udfff" for char in text):
        return text
    try:
        return os.fsencode(text).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{name} is not UTF-8 text: byte {error.start} is 0x{error.object[error.start]:02x}") from None


def _checked(path: Path, settings: Settings, is_served: bool) -> "GgufFile":
    """The file's header. What is wrong with the file or too large for the machine is said here, before numba loads."""
    from dataclasses import replace

    from appliance.machine.host import read_machine
    from appliance.swaps.planning import request_of
    from engine.gguf.reader import read_gguf
    from engine.models.shape import DecoderShape
    from engine.planner import plan

    header = read_gguf(path)
    machine = read_machine()
    plan(header, DecoderShape.read(header), machine, replace(request_of(settings, machine), is_served=is_served))
    return header


def _load(path: Path, settings: Settings, progress: Progress, is_served: bool) -> "Engine":
    from dataclasses import replace

    from appliance.machine.host import read_machine
    from appliance.machine.rates import with_rates
    from engine.kernels.cut import end_plainly
    from engine.load import load_engine

    end_plainly()
    options = replace(settings.engine_options(), is_served=is_served)
    machine = with_rates(read_machine(), path, settings.data_dir, options.threads)
    return load_engine(path, options, machine, on_progress=progress)

