"""Flags made from the settings' own words, and the settings made from flags. Not here: what a setting means."""

import argparse
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from appliance.settings import PREFIX, Resolved, Settings, about, flag_of, resolve, user_data_dir

MODEL = ("model", "models_dir")
ENGINE = ("ctx_size", "threads", "threads_batch", "batch_size", "ubatch_size", "cache_type_k", "cache_type_v",
          "load_mode", "cache_mb", "parallel", "spec_type", "spec_ngram_simple_size_n", "spec_ngram_simple_size_m",
          "spec_draft_model", "spec_draft_n_max")  # fmt: skip
SAMPLING = ("n_predict", "temp", "top_k", "top_p", "min_p", "typical_p", "repeat_penalty", "repeat_last_n",
            "presence_penalty", "frequency_penalty", "seed")  # fmt: skip
TEMPLATE = ("chat_template", "chat_template_file")
SERVING = tuple(key for key in Settings.model_fields if key not in (*MODEL, *ENGINE, *SAMPLING))
# Further long names: llama.cpp's own, so that command lines move over unchanged.
ALSO = {"n_predict": ("--predict",), "temp": ("--temperature",), "typical_p": ("--typical",),
        "spec_draft_model": ("--model-draft",)}
LAST = "last"
"""Instead of a profile's name: the one that served last. Only `serve` knows it."""
METAVARS = {"model": "FILE", "spec_draft_model": "FILE", "log_file": "FILE", "api_key_file": "FILE",
            "ssl_key_file": "FILE", "ssl_cert_file": "FILE",
            "chat_template_file": "FILE", "models_dir": "DIR", "data_dir": "DIR", "alias": "NAME",
            "chat_template": "NAME", "host": "ADDRESS", "api_key": "KEY", "cors_origin": "LIST",
            "allowed_host": "LIST"}


def add_settings(parser: argparse.ArgumentParser, *groups: tuple[str, ...]) -> None:
    """Add the flags of `groups`; each is None unless given, so that lower layers show through."""
    titles = {MODEL: "model", ENGINE: "engine", TEMPLATE: "template", SAMPLING: "sampling", SERVING: "serving"}
    for keys in groups:
        group = parser.add_argument_group(titles.get(keys, "settings"))
        for key in keys:
            _add(group, key)
        if "model" in keys:
            group.add_argument("--profile", metavar="NAME", help="a named set of settings (colibri config explain)")
        if "load_mode" in keys:
            _add_load_words(group)


def _add(group: "argparse._ArgumentGroup", key: str) -> None:
    field = Settings.model_fields[key]
    default = field.default
    is_shown = default is not None and default != () and not isinstance(default, bool)
    usual = str(default) if is_shown else "" if isinstance(default, bool) else str(about(key)["why"])
    shown = f" (default: {usual.removeprefix('unset: ')})" if usual else ""
    names = [*about(key)["short"], flag_of(key), *ALSO.get(key, ())]
    help_ = f"{field.description}{shown}".replace("%", "%%")
    if isinstance(default, bool):
        if key == "offline":
            group.add_argument(*names, action="store_const", const="true", help=help_)
        elif default:
            group.add_argument(*names, action=argparse.BooleanOptionalAction, default=None, help=help_)
        else:
            group.add_argument(*names, action="store_const", const="true", help=help_)
    else:
        group.add_argument(*names, metavar=METAVARS.get(key, "N" if default is None or _is_number(default) else "WORD"),
                           help=help_)  # fmt: skip


def _add_load_words(group: "argparse._ArgumentGroup") -> None:
    """llama.cpp's four words; the last one given counts. --mmap allows a copy, only --load-mode mmap forbids it."""
    for name, mode, words in (
        ("--mmap", "auto", "same as --load-mode auto"),
        ("--no-mmap", "resident", "same as --load-mode resident"),
        ("--mlock", "mlock", "same as --load-mode mlock"),
        ("--no-mlock", "auto", "same as --load-mode auto"),
    ):
        group.add_argument(name, dest="load_mode", action="store_const", const=mode, help=words)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)


def layers(args: argparse.Namespace) -> tuple[Callable[[Mapping[str, Any] | None], Resolved], str | None]:
    """What lays a profile's values between defaults and this command line, and the profile that it names."""
    flags = {key: value for key in Settings.model_fields if (value := getattr(args, key, None)) is not None}
    name = getattr(args, "profile", None) or os.environ.get(PREFIX + "PROFILE") or None
    return lambda profile: resolve(flags, os.environ, profile), name


def resolved(args: argparse.Namespace) -> Resolved:
    """The settings of a command line, with the profile that it or the environment names."""
    lay, name = layers(args)
    if name is None:
        return lay(None)
    from appliance.profiles import load_profile

    return lay(load_profile(name, data_dir(args)))


def data_dir(args: argparse.Namespace) -> Path:
    """The data folder that a command line or the environment names, before any settings are made."""
    return Path(getattr(args, "data_dir", None) or os.environ.get(PREFIX + "DATA_DIR") or user_data_dir()).expanduser()
