"""Which chat template counts: the setting's, the file's own, or its family's. Not here: rendering (templates.py)."""

from pathlib import Path
from typing import TYPE_CHECKING

from appliance.known_templates import KNOWN, recognised
from engine.errors import RequestError, UsageError

if TYPE_CHECKING:
    from appliance.settings import Settings
    from engine.text import Text

MOST_BYTES = 1 << 20
"""The longest template of a real model that we know of has 20 kB."""


def choose(text: "Text", settings: "Settings", architecture: str) -> str | None:
    """Settle `text`'s chat template and say in words where it comes from; None for the file's own.

    UsageError for a setting that names no template.
    """
    if settings.chat_template is not None and settings.chat_template_file is not None:
        raise UsageError("chat_template and chat_template_file both give a template; use one")
    if settings.chat_template is not None:
        text.chat_template, text.tool_template = _named(settings.chat_template), None
        return f"the chat template is the one of the setting chat_template ({settings.chat_template[:40]!r})"
    if settings.chat_template_file is not None:
        text.chat_template, text.tool_template = _read(settings.chat_template_file), None
        return f"the chat template is that of the file {settings.chat_template_file.name}"
    if text.chat_template is not None:
        return None
    name = recognised(architecture, frozenset(text.vocab.tokens))
    if name is None:
        return "the model file has no chat template and its family is not known; chat needs --chat-template"
    text.chat_template = KNOWN[name].template
    return f"the model file has no chat template; its tokens are those of '{name}', whose template is used"


def required(text: "Text", has_tools: bool = False) -> str:
    """The template for a conversation; RequestError says what to do where there is none."""
    template = text.tool_template if has_tools and text.tool_template is not None else text.chat_template
    if template is None:
        raise RequestError(
            "this model has no chat template; start with --chat-template NAME or --chat-template-file FILE, "
            f"or send the whole prompt to /v1/completions (known: {', '.join(KNOWN)})"
        )
    return template


def _named(given: str) -> str:
    if given in KNOWN:
        return KNOWN[given].template
    if "{{" in given or "{%" in given:
        return given
    raise UsageError(
        f"chat_template {given[:40]!r} is neither a known template ({', '.join(KNOWN)}) nor the text of one; "
        "a file is given with --chat-template-file"
    )


def _read(path: Path) -> str:
    if path.exists() and not path.is_file():  # a pipe would be waited for
        raise UsageError(f"the chat template file {path} is no file")
    try:
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"the chat template file {path} cannot be read ({error.strerror})") from None
    if len(raw) > MOST_BYTES:
        raise UsageError(f"the chat template file {path} has more than {MOST_BYTES >> 10} KiB; it is no chat template")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"the chat template file {path} is not UTF-8 text: byte {error.start}") from None
