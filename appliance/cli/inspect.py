"""`colibri inspect`: what a GGUF file, or each file of a folder, holds. Not here: loading, planning.

    --json FILE    {"file", "bytes", "version", "alignment", "data_offset", "architecture", "name", "n_params",
                   "n_ctx_train", "types", "supported", "reason", "shape", "metadata", "tensors"}
    --json DIR     {"folder", "files": [{"file", "bytes", "ok", "reason", "architecture", "n_params", ...}]}
"""

import argparse
import json
import math
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from appliance.cli.columns import columns, human_bytes, human_count, safe
from appliance.cli.flags import MODEL, add_settings, resolved
from engine.errors import BadModelFile, ColibriError
from engine.gguf.reader import GgufFile, Value, read_gguf
from engine.gguf.split import one_each
from engine.models.shape import DecoderShape

NAME = "inspect"
HELP = "what a GGUF file holds"
SHOWN_ITEMS = 8
SHOWN_CHARS = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "examples:\n  colibri inspect model.gguf             metadata, tensors by type, whether it runs here\n"
        "  colibri inspect models/                every file of a folder, broken ones with their reason\n"
        "  colibri inspect model.gguf --tensors   each tensor too\n\n"
        "Exit code 3 when the file is broken or does not run here; the reason is on stderr"
    )
    parser.add_argument("path", nargs="?", metavar="FILE|DIR", help="default: the model of the settings")
    parser.add_argument("--tensors", action="store_true", help="list each tensor, not only the sums by type")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    add_settings(parser, MODEL)


def run(args: argparse.Namespace) -> int:
    if args.path is not None and Path(args.path).is_dir():
        return _run_folder(Path(args.path), args.json)
    if args.path is not None:
        args.model = args.path
    gguf = read_gguf(resolved(args).settings.model_path())
    shape, error = _shape(gguf)
    facts = _facts(gguf, shape, error)
    if args.json:
        print(json.dumps(facts | {"metadata": _brief(gguf), "tensors": list(_tensors(gguf))}))
    else:
        print(_page(gguf, facts))
        if args.tensors:
            rows = [[safe(t.name), t.type.name, " x ".join(map(str, t.dims)), str(t.offset), human_bytes(t.n_bytes)]
                    for t in gguf.tensors.values()]  # fmt: skip
            print("\n" + columns([["tensor", "type", "dims", "offset", "size"], *rows], right=(3, 4)))
    if error is not None:
        raise error
    return 0


def _run_folder(folder: Path, as_json: bool) -> int:
    """A broken file is a row with its reason and spoils nothing for the others."""
    try:
        paths = one_each(sorted(p for p in folder.iterdir() if p.suffix.lower() == ".gguf"))
    except OSError as error:
        raise BadModelFile(f"the folder {folder} cannot be read: {error.strerror}") from None
    found = [_listed(path) for path in paths]
    if as_json:
        print(json.dumps({"folder": str(folder), "files": found}))
        return 0
    rows = [["file", "size", "architecture", "parameters", "context", "types or reason"]]
    for facts in found:
        if facts["architecture"] is None:
            cells = ["?", "?", "?"]
        else:
            ctx = facts["n_ctx_train"]
            cells = [safe(str(facts["architecture"]), 20), human_count(_int(facts["n_params"])), str(ctx or "?")]
        last = "cannot run: " + str(facts["reason"]) if facts["reason"] else _type_words(facts)
        rows.append([safe(str(facts["file"]), 60), human_bytes(_int(facts["bytes"])), *cells, last])
    print(columns(rows, right=(1, 3, 4)) if found else f"no .gguf file in {safe(str(folder), 200)}")
    return 0


def _listed(path: Path) -> dict[str, object]:
    empty = dict.fromkeys(("architecture", "name", "n_params", "n_ctx_train", "types"))
    try:
        gguf = read_gguf(path)
    except ColibriError as error:
        return {"file": path.name, "bytes": _size(path), "ok": False, "reason": _reason(error, path), **empty}
    facts = _facts(gguf, *_shape(gguf))
    ok = {"file": path.name, "bytes": gguf.n_bytes, "ok": facts["supported"], "reason": facts["reason"]}
    return ok | {key: facts[key] for key in empty}


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _reason(error: ColibriError, path: Path) -> str:
    """The sentence without the file's name, which the row already has."""
    return error.message.removeprefix(f"'{safe(path.name, 120)}': ")


def _int(value: object) -> int:
    return value if isinstance(value, int) else 0


def _shape(gguf: GgufFile) -> tuple[DecoderShape | None, BadModelFile | None]:
    try:
        return DecoderShape.read(gguf), None
    except BadModelFile as error:
        return None, error


def _facts(gguf: GgufFile, shape: DecoderShape | None, error: BadModelFile | None) -> dict[str, object]:
    arch = gguf.metadata.get("general.architecture")
    trained = shape.n_ctx_train if shape else gguf.metadata.get(f"{arch}.context_length")
    types: dict[str, dict[str, int]] = {}
    for t in gguf.tensors.values():
        row = types.setdefault(t.type.name, {"tensors": 0, "params": 0, "bytes": 0})
        row["tensors"] += 1
        row["params"] += t.n_rows * t.k
        row["bytes"] += t.n_bytes
    return {
        "file": gguf.path.name,
        "bytes": gguf.n_bytes,
        "version": gguf.version,
        "alignment": gguf.alignment,
        "data_offset": gguf.data_offset,
        "architecture": arch if isinstance(arch, str) else None,
        "name": _scalar(gguf.metadata.get("general.name", "")),
        "n_params": sum(row["params"] for row in types.values()),
        "n_ctx_train": trained if isinstance(trained, int) else None,
        "types": dict(sorted(types.items(), key=lambda item: -item[1]["bytes"])),
        "supported": error is None,
        "reason": None if error is None else _reason(error, gguf.path),
        "shape": asdict(shape) if shape else None,
    }


def _type_words(facts: dict[str, object]) -> str:
    types = facts["types"]
    assert isinstance(types, dict)
    return ", ".join(f"{name} {row['tensors']}" for name, row in types.items())


def _page(gguf: GgufFile, facts: dict[str, object]) -> str:
    n_params = _int(facts["n_params"])
    types = facts["types"]
    assert isinstance(types, dict)
    bits = 8 * sum(row["bytes"] for row in types.values()) / n_params if n_params else 0.0
    head = [
        ["file", safe(gguf.path.name, 200)],
        ["size", f"{human_bytes(gguf.n_bytes)} ({gguf.n_bytes:,} bytes), GGUF version {gguf.version}"],
        ["architecture", safe(str(facts["architecture"] or "?"), 40)],
        ["parameters", f"{human_count(n_params)} ({n_params:,}), {bits:.2f} bits each"],
        ["context", f"{facts['n_ctx_train'] or '?'} positions trained"],
        ["runs here", "yes" if facts["supported"] else f"no: {facts['reason']}"],
    ]
    rows = [["type", "tensors", "parameters", "size"]]
    rows += [[n, str(r["tensors"]), human_count(r["params"]), human_bytes(r["bytes"])] for n, r in types.items()]
    entries = [[safe(key), gguf.kinds[key], _words(value)] for key, value in gguf.metadata.items()]
    return "\n\n".join([columns(head), columns(rows, right=(1, 2, 3)), columns([["key", "kind", "value"], *entries])])


def _words(value: Value) -> str:
    if isinstance(value, list):
        first = ", ".join(_words(v) for v in value[:SHOWN_ITEMS])
        return safe(f"{len(value)}: {first}" + (", …" if len(value) > SHOWN_ITEMS else ""), SHOWN_CHARS)
    if isinstance(value, str):
        return safe(value, SHOWN_CHARS)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _brief(gguf: GgufFile) -> dict[str, object]:
    """Metadata for JSON: an array longer than 8 becomes {"kind", "n", "first"}."""
    return {key: _short(value, gguf.kinds[key]) for key, value in gguf.metadata.items()}


def _short(value: Value, kind: str) -> object:
    if not isinstance(value, list):
        return _scalar(value)
    first = [_short(v, "array") for v in value[:SHOWN_ITEMS]]
    return first if len(value) <= SHOWN_ITEMS else {"kind": kind, "n": len(value), "first": first}


def _scalar(value: Value) -> object:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value  # JSON has no NaN


def _tensors(gguf: GgufFile) -> Iterator[dict[str, object]]:
    for t in gguf.tensors.values():
        yield {"name": t.name, "type": t.type.name, "dims": list(t.dims), "offset": t.offset, "bytes": t.n_bytes}
