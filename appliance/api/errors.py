"""The one place that knows the shape of an HTTP error: body, headers, and what stays inside. Not here: who raises."""

import json
import logging
import math
import traceback
from typing import Any

from aiohttp import web

from appliance.strict_json import InvalidJson as InvalidJson
from engine.errors import (
    ColibriError,
    EngineFailed,
    NotAuthorised,
    NotPermitted,
    RequestError,
    Unavailable,
)

log = logging.getLogger("colibri.api")

DEFAULT_RETRY_S = 5
# A second try at once gives the same answer, so SDKs (which repeat every 5xx) are told not to.
NOT_DETERMINISTIC = (Unavailable, EngineFailed)


class NoSuchRoute(RequestError):
    status, code = 404, "route_not_found"


class WrongMethod(RequestError):
    status, code = 405, "method_not_allowed"


class TooLarge(RequestError):
    status, code = 413, "request_too_large"


class UnmetExpectation(RequestError):
    status, code = 417, "expectation_failed"


class PreconditionRequired(RequestError):
    """A change that does not say what it changes; `extra["etag"]` is what is there now."""

    status, code = 428, "precondition_required"


class ProfileInUse(ColibriError):
    status, type, code = 409, "conflict_error", "profile_in_use"


class TooSlow(RequestError):
    status, code = 408, "request_timeout"


class UnsupportedParameter(RequestError):
    code = "unsupported_parameter"


class MissingParameter(RequestError):
    code = "missing_required_parameter"


class HostNotAllowed(NotPermitted):
    code = "host_not_allowed"


class OriginNotAllowed(NotPermitted):
    code = "origin_not_allowed"


class Draining(Unavailable):
    code = "draining"


class EndpointDisabled(ColibriError):
    status, type, code = 501, "not_supported_error", "endpoint_disabled"


class AnswerTimeout(ColibriError):
    status, code = 504, "answer_timeout"


class BadHttp(RequestError):
    code = "bad_http"


def public(error: BaseException, request_id: str) -> ColibriError:
    """The error a client may see: ours as it is, anything else as a bare internal error whose place is logged.

    The log gets the stack and the class, never the message: it may hold a piece of a prompt.
    """
    if isinstance(error, ColibriError):
        return error
    stack = "".join(traceback.format_tb(error.__traceback__))
    log.error("%s unexpected %s\n%s", request_id, type(error).__name__, stack)
    return ColibriError(f"the server failed on this request; its log has the reason under {request_id}")


def error_object(error: ColibriError) -> dict[str, Any]:
    """`{"message", "type", "param", "code"}` with the error's extra facts beside them."""
    facts = {k: v for k, v in error.extra.items() if k != "retry_after_s" and v is not None}
    return {"message": error.message, "type": error.type, "param": error.param, "code": error.code, **facts}


def error_headers(error: ColibriError) -> dict[str, str]:
    """What an SDK reads before it tries again."""
    headers: dict[str, str] = {}
    if isinstance(error, NotAuthorised):
        headers["WWW-Authenticate"] = "Bearer"
    if error.status in (429, 503):
        wait = error.extra.get("retry_after_s")
        wait_s = float(wait) if isinstance(wait, int | float) and wait > 0 else float(DEFAULT_RETRY_S)
        headers["Retry-After"] = str(max(1, math.ceil(wait_s)))
        headers["retry-after-ms"] = str(math.ceil(wait_s * 1000))
    elif error.status >= 500 and not isinstance(error, NOT_DETERMINISTIC):
        headers["x-should-retry"] = "false"
    return headers


def error_response(error: ColibriError) -> web.Response:
    """The whole answer; the request id is added to every answer by the middleware."""
    body = json.dumps({"error": error_object(error)}, ensure_ascii=False).encode("utf-8", "replace")
    headers = error_headers(error)
    return web.Response(body=body, status=error.status, content_type="application/json", headers=headers)
