"""Work that waits, such as a question to the service: done beside the screen, gone with it. Not here: the work.

Textual takes a coroutine too, but one that is cancelled before its first step is never awaited and complains; a
function is called only when the work begins. A fault does not end the program.
"""

from collections.abc import Callable, Coroutine
from typing import Any, cast

from textual.dom import DOMNode
from textual.worker import Worker


def work(node: DOMNode, do: Callable[[], Coroutine[Any, Any, Any]], group: str, exclusive: bool = False) -> Worker[Any]:
    """Begin it; `exclusive` ends what of this group is still under way."""
    made: Worker[Any] = node.run_worker(cast(Any, do), group=group, exclusive=exclusive, exit_on_error=False)
    return made
