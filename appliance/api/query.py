"""What stands behind the question mark of our own routes, checked like bodies are. Not here: bodies, paths."""

from collections.abc import Sequence

from aiohttp import web

from appliance.api.errors import UnsupportedParameter
from appliance.names import hint
from engine.errors import InvalidParameter


def known_only(request: web.Request, *names: str) -> None:
    """Refuse a name that this route does not read, or one that is given twice."""
    for name in request.query:
        if name not in names:
            shown = "".join(c for c in name[:64] if c.isprintable())
            near = hint(shown, names) or "; leave it out"
            raise UnsupportedParameter(f"this route knows no query '{shown}'{near}", param=shown)
        if len(request.query.getall(name)) > 1:
            raise InvalidParameter(f"{name} is given twice; give it once", param=name)


def whole(request: web.Request, name: str, default: int | None, least: int, most: int) -> int | None:
    """A whole number between `least` and `most`, `default` where it is not given."""
    text = request.query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 15 and least <= int(text) <= most):
        raise InvalidParameter(f"{name}: a whole number from {least} to {most} expected", param=name)
    return int(text)


def word(request: web.Request, name: str, default: str, choices: Sequence[str]) -> str:
    text = request.query.get(name, default)
    if text not in choices:
        raise InvalidParameter(f"{name}: {', '.join(choices[:-1])} or {choices[-1]} expected", param=name)
    return text
