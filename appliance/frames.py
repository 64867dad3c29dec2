"""The frames between API and worker, and their JSON. Not here: how they travel (wire.py).

    API → worker                                worker → API
    hello {protocol}                            hello {protocol, pid, version}
    generate {id, …the request}                 progress {stage, done, total, note}
    ack {id, n}        n pieces were taken      ready {…facts}
    cancel {id}                                 beat {beat, busy, id?, phase?, done?, total?, spent?, rss_anon}
                                                experts {shape, held, heat, used_bytes}   hex, a byte
                                                    per (layer, expert)
    shutdown {}                                 prefill {id, done, total, cached, ms}
                                                piece {id, text, ids, logprobs?}
                                                done {id, …} | cancelled {id, phase, n_generated} | error {id, error}
                                                    one of these ends a request; the engine is free then
                                                fatal {error}   the worker ends now, and why

A token's bytes travel as latin-1 text: one character per byte, no base64.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from appliance.request import Done, GenerateRequest, Piece, Prefill, TokenLogprob
from appliance.wire import Frame, WireError
from engine import errors
from engine.errors import ColibriError
from engine.sampling import Sampling

SMALLEST_LOGPROB = -9999.0


def generate_frame(request: GenerateRequest) -> Frame:
    sampling = {f.name: getattr(request.sampling, f.name) for f in fields(request.sampling)}
    sampling["logit_bias"] = list(request.sampling.logit_bias.items())  # a JSON object would turn the ids into text
    values = {f.name: getattr(request, f.name) for f in fields(request) if f.name != "speech"}
    return {"type": "generate", **values, "sampling": sampling}


def read_generate(frame: Frame) -> GenerateRequest:
    """The request in a generate frame; raises WireError for one of another shape."""
    try:
        values = {f.name: frame[f.name] for f in fields(GenerateRequest) if f.name != "speech"}
        sampling = dict(values["sampling"])
        sampling["logit_bias"] = {int(token): float(bias) for token, bias in sampling["logit_bias"]}
        values["sampling"] = Sampling(**sampling)
        values["stop"], values["shown"] = tuple(values["stop"]), tuple(values["shown"])
        values["options"] = tuple(tuple(option) for option in values["options"])
        return GenerateRequest(**values)
    except (KeyError, TypeError, ValueError) as error:
        raise WireError(f"a generate frame is malformed: {type(error).__name__} {error}") from None


def piece_frame(request_id: str, text: str, ids: list[int], logprobs: list[TokenLogprob]) -> Frame:
    frame: Frame = {"type": "piece", "id": request_id, "text": text, "ids": ids}
    if logprobs:
        frame["logprobs"] = [(*_token(lp), [_token(rival) for rival in lp.top]) for lp in logprobs]
    return frame


def read_piece(frame: Frame) -> Piece:
    logprobs = [
        TokenLogprob(i, text.encode("latin-1"), lp, tuple(TokenLogprob(j, t.encode("latin-1"), p) for j, t, p in top))
        for i, text, lp, top in frame.get("logprobs", ())
    ]
    return Piece(frame["text"], frame["ids"], logprobs)


def read_prefill(frame: Frame) -> Prefill:
    return Prefill(frame["done"], frame["total"], frame["cached"], frame["ms"])


def done_frame(request_id: str, done: Done) -> Frame:
    return {"type": "done", "id": request_id} | {f.name: getattr(done, f.name) for f in fields(done)}


def read_done(frame: Frame, queue_ms: float) -> Done:
    values = {f.name: frame[f.name] for f in fields(Done)}
    values["timings"] = {**values["timings"], "queue_ms": queue_ms}
    if values["scores"] is not None:
        values["scores"] = tuple(values["scores"])
    return Done(**values)


def error_value(error: ColibriError) -> dict[str, Any]:
    """An error as JSON: its class's ancestors too, so that a leaf unknown to the reader becomes its nearest kin."""
    return {
        "kinds": [kind.__name__ for kind in type(error).__mro__ if issubclass(kind, ColibriError)],
        "message": error.message,
        "param": error.param,
        "extra": {key: value for key, value in error.extra.items() if _is_plain(value)},
        "status": error.status,
        "exit_code": error.exit_code,
        "error_type": error.type,
        "code": error.code,
    }


def read_error(value: Mapping[str, Any]) -> ColibriError:
    """The exception again, with the same message, status, type, code and exit code."""
    known = (getattr(errors, name, None) for name in value["kinds"])
    kind = next((k for k in known if isinstance(k, type) and issubclass(k, ColibriError)), ColibriError)
    error = kind(value["message"], param=value["param"], **value["extra"])
    error.status, error.exit_code = value["status"], value["exit_code"]
    error.type, error.code = value["error_type"], value["code"]
    return error


def _token(lp: TokenLogprob) -> tuple[int, str, float]:
    return lp.id, lp.text.decode("latin-1"), lp.logprob


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, str | int | float | bool)
