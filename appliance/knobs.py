"""How a setting is declared: its field, and the kinds of values that several settings take. Not here: the settings."""

from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic.config import JsonDict


def knob(default: Any, help: str, kind: str, reader: str, why: str = "", *, short: tuple[str, ...] = (),
         secret: bool = False, **limits: Any) -> Any:  # fmt: skip
    """A field with what `config explain`, the flags and the documentation need; `kind` says what a change costs.

    engine: the worker is started anew; serving: applied to the next request; process: this process only.
    """
    extra: JsonDict = {"kind": kind, "reader": reader, "why": why, "short": list(short), "secret": secret}
    return Field(default, description=help, repr=not secret, json_schema_extra=extra, **limits)


def _auto(value: object) -> object:
    return None if value in ("auto", "0", 0, "-1", -1) else value


def _only_true(value: bool) -> bool:
    if not value:
        raise ValueError("it should be true, there is nothing here that could go online")
    return value


def _words(value: object) -> object:
    return tuple(w.strip() for w in value.split(",") if w.strip()) if isinstance(value, str) else value


Folder = Annotated[Path, AfterValidator(Path.expanduser)]
Auto = Annotated[int | None, BeforeValidator(_auto)]
AutoOrNone = Annotated[int | None, BeforeValidator(lambda value: None if value == "auto" else value)]
Offline = Annotated[bool, AfterValidator(_only_true)]
Words = Annotated[tuple[str, ...], BeforeValidator(_words)]
