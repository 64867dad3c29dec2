"""A scripted service, and the program looking at it in a window of a given size. Not here: the script (fake.py)."""

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.tui.fake import Fake
from tui.app import ColibriApp
from tui.client import Client
from tui.looks import Looks
from tui.pace import Pace


@pytest.fixture(autouse=True)
def a_home_of_its_own(tmp_path, monkeypatch) -> None:
    """No file of the person who runs the tests is read, and none is written there."""
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "HOME"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    for name in ("NO_COLOR", "SSH_CONNECTION", "COLIBRI_URL", "COLIBRI_ADMIN_KEY", "COLIBRI_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TEXTUAL_ANIMATIONS", "none")


@pytest.fixture
async def fake() -> AsyncIterator[Fake]:
    service = Fake()
    await service.start()
    yield service
    await service.stop()


@pytest.fixture
def program(fake: Fake) -> Callable[..., ColibriApp]:
    """Makes the program, pointed at the scripted service, asking often."""

    def make(**more: Any) -> ColibriApp:
        more.setdefault("pace", Pace(0.1))
        more.setdefault("looks", Looks(ascii=True))
        return ColibriApp(Client(fake.url, "ck-admin-test", "ops"), **more)

    return make


@pytest.fixture
def window(program) -> Callable[..., Any]:
    """`async with window(80, 24) as pilot`: the program running in a window of that size."""

    @contextlib.asynccontextmanager
    async def opened(width: int = 120, height: int = 36, **more: Any) -> AsyncIterator[Any]:
        is_faulty = more.pop("is_faulty", False)
        app = program(**more)
        async with app.run_test(size=(width, height), notifications=True) as pilot:
            yield pilot
        assert is_faulty or not app.faults, "".join(Path(fault.file).read_text() for fault in app.faults)

    return opened
