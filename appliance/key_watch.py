"""Keys that are added or revoked while the service runs: noticed within seconds, read in a thread. Not here: the file.

And the one time that keys are shown: at the first start, to whoever sits before it.
"""

import asyncio
import logging
import sys
from pathlib import Path

from appliance.keys import KeyRing
from engine.errors import UsageError

LOOK_S = 2.0
log = logging.getLogger("colibri.keys")


async def follow(keys: KeyRing, every_s: float = LOOK_S) -> None:
    """Take over what the file holds after each change; one that is spoilt changes nothing and is logged. Never ends."""
    while True:
        await asyncio.sleep(every_s)
        try:
            found = await asyncio.to_thread(keys.changed)
        except UsageError as error:
            log.error("%s; the keys of before stay in force", error.message)
            continue
        if found is not None:
            keys.replace(found)
            log.info("the key file has changed: %d keys are in force", len(keys))


def tell(path: Path) -> None:
    """Say that keys were made. Their secrets go to a terminal alone: a log keeps what it is given."""
    log.info("new keys are in %s", path)
    if sys.stderr.isatty():
        lines = [line.split() for line in path.read_text().splitlines() if not line.startswith("#")]
        shown = "".join(f"  {words[0]:6} {words[1]}\n" for words in lines)
        sys.stderr.write(f"The keys of this service, shown this once (they are kept in {path}):\n{shown}")
        sys.stderr.flush()
