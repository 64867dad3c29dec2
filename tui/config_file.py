"""A file of settings read strictly: every value is text, no key twice, no anchors or tags. Not here: what they mean."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

MOST_BYTES = 64 * 1024


class Wrong(Exception):
    """The file cannot be used; the message names it, the line, and what was expected."""


@dataclass
class Found:
    """The values with their lines, and the keymap."""

    values: dict[str, tuple[str, int]] = field(default_factory=dict)
    keymap: dict[str, str] = field(default_factory=dict)


def read(path: Path) -> Found:
    """What the file says; nothing when there is none. The scalars of YAML 1.1 are not guessed at: `off` stays "off"."""
    try:
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return Found()
    except OSError as error:
        raise Wrong(f"{path} cannot be read ({error.strerror}); check its owner and mode") from None
    if len(raw) > MOST_BYTES:
        raise Wrong(f"{path} is larger than {MOST_BYTES} bytes; it should hold a dozen lines")
    import yaml

    try:
        # Events, not values, each looked at before the next is read: no file can make this large, deep or slow.
        return _found(path, yaml.parse(raw.decode("utf-8"), Loader=yaml.SafeLoader))
    except UnicodeDecodeError:
        raise Wrong(f"{path} is not UTF-8 text") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" line {mark.line + 1}" if mark else ""
        raise Wrong(f"{path}{where}: {getattr(error, 'problem', None) or 'this is no YAML'}") from None
    except RecursionError:
        raise Wrong(f"{path} is nested too deeply; it should hold a dozen lines") from None


def _found(path: Path, events: Iterable[object]) -> Found:
    import yaml

    found = Found()
    group = key = ""
    depth = 0
    for event in events:
        if not isinstance(event, yaml.NodeEvent | yaml.CollectionEndEvent):
            continue
        line = event.start_mark.line + 1 if event.start_mark else 1
        if getattr(event, "anchor", None) or getattr(event, "tag", None):
            raise Wrong(f"{path} line {line}: anchors and tags are not used here; write the value itself")
        if isinstance(event, yaml.MappingStartEvent):
            depth += 1
            if depth == 2 and key == "keymap":
                group, key = "keymap", ""
            elif depth > 1:
                raise Wrong(f"{path} line {line}: '{key}' should be one value, not a group")
        elif isinstance(event, yaml.MappingEndEvent):
            depth -= 1
            group = ""
        elif isinstance(event, yaml.ScalarEvent):
            if depth == 0:
                if event.value == "":
                    continue  # an empty file
                raise Wrong(f"{path} line {line}: this should read 'setting: value'")
            if not key:
                key = event.value
                if key in (found.keymap if group else found.values):
                    raise Wrong(f"{path} line {line}: '{key}' is set twice")
                continue
            if group:
                found.keymap[key] = event.value
            else:
                found.values[key] = (event.value, line)
            key = ""
        else:
            raise Wrong(f"{path} line {line}: a list is not used here; write one value")
    return found
