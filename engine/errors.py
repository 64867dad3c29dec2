"""Every exception a user may meet, with its HTTP status and its exit code. Not here: how an error is printed or sent.

    ColibriError
    ├── UsageError              the command line or a setting is wrong            exit 2
    ├── BadModelFile            the model file cannot be used                     exit 3
    │   ├── UnsupportedModel        an architecture or a key nobody here computes
    │   ├── UnsupportedTensorType   a tensor type without a kernel
    │   └── TemplateError           the file's chat template does not render
    ├── DoesNotFit              more memory asked for than there is               exit 4
    ├── Unreachable             no server there, or the port is taken             exit 5
    ├── RequestError            the request cannot be answered as it stands       exit 2
    │   ├── InvalidParameter        a value out of range, a field nobody reads
    │   ├── ContextLengthExceeded   the prompt leaves no room for one token
    │   ├── ModelNotFound           an id that nobody serves
    │   ├── NotAuthorised           no key, or a key that nobody gave out
    │   └── NotPermitted            a good key without that right
    ├── Busy                    try again later                                   exit 1
    │   ├── QueueFull               the queue has no place
    │   └── QueueTimeout            waited as long as the settings allow
    ├── Unavailable             nobody will serve this request                    exit 1
    │   ├── ModelLoading            the model is being loaded and nothing may wait for it
    │   └── EngineDown              the engine crashed or is shutting down
    └── EngineFailed            the engine broke while it worked                  exit 1
        └── ReadFailed              the disk or the file did not give the weights

A message says what was seen, what was expected and what to do, in one sentence, without paths a stranger must not see.
"""


class ColibriError(Exception):
    """Base of all: `status`, `type` and `code` are the OpenAI error's fields, `exit_code` the command line's."""

    status = 500
    exit_code = 1
    type = "server_error"
    code = "internal_error"

    def __init__(self, message: str, *, param: str | None = None, **extra: object) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.extra = extra


class UsageError(ColibriError):
    status, exit_code, type, code = 400, 2, "invalid_request_error", "usage"


class BadModelFile(ColibriError):
    status, exit_code, type, code = 500, 3, "server_error", "bad_model_file"


class ModelUnreadable(BadModelFile):
    """The disk does not give the file now; it may another time."""

    code = "model_unreadable"


class UnsupportedModel(BadModelFile):
    code = "unsupported_model"


class UnsupportedTensorType(BadModelFile):
    code = "unsupported_tensor_type"


class TemplateError(BadModelFile):
    """A request can provoke it (the template raises on odd messages), hence 400."""

    status, type, code = 400, "invalid_request_error", "template_error"


class DoesNotFit(ColibriError):
    status, exit_code, type, code = 507, 4, "server_error", "does_not_fit"


class Unreachable(ColibriError):
    status, exit_code, type, code = 502, 5, "server_error", "unreachable"


class RequestError(ColibriError):
    status, exit_code, type, code = 400, 2, "invalid_request_error", "invalid_request"


class InvalidParameter(RequestError):
    code = "unsupported_value"


class ContextLengthExceeded(RequestError):
    code = "context_length_exceeded"


class ModelNotFound(RequestError):
    status, code = 404, "model_not_found"


class NotAuthorised(RequestError):
    status, code = 401, "invalid_api_key"


class NotPermitted(RequestError):
    status, type, code = 403, "permission_error", "insufficient_permissions"


class Busy(ColibriError):
    """`retry_after_s` in `extra` becomes the Retry-After header."""

    status, type, code = 429, "rate_limit_error", "rate_limit_exceeded"


class QueueFull(Busy):
    code = "queue_full"


class QueueTimeout(Busy):
    code = "queue_timeout"


class Unavailable(ColibriError):
    status, type, code = 503, "unavailable_error", "unavailable"


class ModelLoading(Unavailable):
    code = "model_loading"


class EngineDown(Unavailable):
    code = "engine_down"


class EngineFailed(ColibriError):
    code = "engine_failed"


class ReadFailed(EngineFailed):
    """This step counts for nobody; the engine lives and the next one tries again."""

    code = "read_failed"


class ModelFileChanged(ReadFailed):
    """The file is not the one that was loaded: no later step will be better, the model has to be loaded again."""

    code = "model_file_changed"
