"""One service shared by a module's tests, which leave it as they found it. Not here: other services."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.appliance.api.service import Service, service


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Service]:
    """A ready service that answers "hello"; tests that use it are marked with loop_scope="module"."""
    async with service(tmp_path_factory.mktemp("shared")) as running:
        yield running
