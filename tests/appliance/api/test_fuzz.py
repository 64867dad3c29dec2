"""Requests that Schemathesis draws from /openapi.json: none ends in a 5xx, a hang or a foreign error shape.

A few per route here; benchmarks/fuzz.py sends thousands.
"""

import asyncio
from pathlib import Path

import pytest

from appliance.api.openapi import document
from appliance.api.routes import ROUTES
from benchmarks.fuzz import hunt
from tests.appliance.api.service import service

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_no_odd_request_meets_a_defect(tmp_path: Path) -> None:
    async with service(tmp_path) as odd:
        found = await asyncio.to_thread(hunt, odd.base, odd.admin, n=4 * len(ROUTES), seed=1)
        assert found.faults == []
        described = document(ROUTES)["paths"]
        asked = {label for label, _ in found.statuses}
        assert asked == {f"{method.upper()} {path}" for path, item in described.items() for method in item}
        assert (await odd.chat(max_tokens=1))[0] == 200
