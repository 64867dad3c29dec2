"""Who gets in: keys on every route but the probes, hosts that cannot be rebound, origins that were named."""

import asyncio
import json
from pathlib import Path

import pytest

from appliance.api.doors import host_is_known
from appliance.api.routes import ROUTES
from appliance.settings import Settings
from tests.appliance.api.service import Service, ask, service

pytestmark = pytest.mark.asyncio(loop_scope="module")
CHAT = "/v1/chat/completions"
PROBES = {"/livez", "/health", "/v1/health", "/readyz"}


async def test_every_route_but_the_probes_is_closed_without_a_key(shared: Service) -> None:
    assert {route.path for route in ROUTES if route.access == "probe"} == PROBES
    for route in ROUTES:
        path = route.path.replace("{id:.+}", "x")
        status, body, headers = await shared.call(route.method, path, {} if route.body else None, Authorization="")
        if route.path in PROBES:
            assert status == 200, path
        else:
            assert (status, body["error"]["code"]) == (401, "invalid_api_key"), path
            assert headers["WWW-Authenticate"] == "Bearer"
    assert (await shared.call("GET", "/no/such/route", Authorization=""))[0] == 401


@pytest.mark.parametrize(
    "value", ["Bearer nope", "Bearer", "Bearer ", "Basic abc", "Bearer k\u00e9y", "nope", "Bearer a b"]
)
async def test_a_wrong_key_is_401_in_our_shape(shared: Service, value: str) -> None:
    status, body, _ = await shared.call("POST", CHAT, ask(), Authorization=value)
    assert (status, body["error"]["code"], body["error"]["param"]) == (401, "invalid_api_key", None)
    assert "nope" not in body["error"]["message"]


async def test_a_key_of_raw_bytes_is_401_too(shared: Service) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", shared.port)
    writer.write(
        b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        b"Authorization: Bearer k\xc3\xa9\xff\r\n\r\n"
    )
    assert b" 401 " in (await reader.read()).split(b"\r\n")[0]
    writer.close()


async def test_a_refused_client_with_a_large_body_hears_why(shared: Service) -> None:
    big = json.dumps(ask(user="x" * 3_000_000)).encode()
    status, body, _ = await shared.call("POST", CHAT, big, Authorization="Bearer nope")
    assert (status, body["error"]["code"]) == (401, "invalid_api_key")


async def test_the_scheme_s_case_and_the_admin_key_are_fine(shared: Service) -> None:
    assert (await shared.call("GET", "/v1/models", Authorization=f"bearer  {shared.user}"))[0] == 200
    assert (await shared.call("GET", "/v1/models", Authorization=f"Bearer {shared.admin}"))[0] == 200


async def test_admin_wants_the_admin_key(shared: Service) -> None:
    status, body, _ = await shared.call("GET", "/admin/state")
    assert (status, body["error"]["type"], body["error"]["code"]) == (
        403,
        "permission_error",
        "insufficient_permissions",
    )
    assert (await shared.call("GET", "/admin/state", Authorization=f"Bearer {shared.admin}"))[0] == 200


async def test_no_auth_opens_v1_and_never_admin(tmp_path: Path) -> None:
    async with service(tmp_path, no_auth=True) as opened:
        for path in ("/v1/models", "/metrics", "/openapi.json"):
            async with opened.client.get(opened.base + path) as answer:
                assert answer.status == 200, path
        assert (await opened.call("POST", CHAT, ask(), Authorization=""))[0] == 200
        assert (await opened.call("GET", "/admin/state", Authorization=""))[0] == 401
        assert (await opened.call("GET", "/admin/state"))[0] == 403
        assert (await opened.call("GET", "/no/such/route", Authorization=""))[0] == 404


async def test_a_key_of_the_settings_opens_and_appears_in_no_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    async with service(tmp_path, api_key="open-sesame-42") as given:
        assert (await given.call("POST", CHAT, ask(), Authorization="Bearer open-sesame-42"))[0] == 200
        assert (await given.call("POST", CHAT, ask(), Authorization="Bearer wrong-guess-43"))[0] == 401
    assert "/v1/chat/completions" in caplog.text
    for word in ("sesame", "wrong-guess", "hi"):
        assert word not in caplog.text.split()


@pytest.mark.parametrize(
    "name",
    [
        "",
        "localhost",
        "localhost:8080",
        "127.0.0.1:80",
        "[::1]:8080",
        "192.168.1.20",
        "colibri",
        "a.localhost",
        "LOCALHOST.",
    ],
)
async def test_hosts_that_no_stranger_can_point_at_us(name: str) -> None:
    assert host_is_known(name, Settings()) is (name != "")


@pytest.mark.parametrize(
    "name", ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "a.b", "[evil]x.y", "::1:a.b"]
)
async def test_hosts_that_a_stranger_can_point_at_us(name: str) -> None:
    assert not host_is_known(name, Settings())


async def test_the_operator_names_further_hosts() -> None:
    assert host_is_known("llm.company.lan:8080", Settings(allowed_host=("LLM.company.lan",)))
    assert host_is_known("anything.example", Settings(allowed_host=("*",)))


async def test_a_foreign_host_is_refused_but_for_probes(shared: Service) -> None:
    status, body, _ = await shared.call("GET", "/v1/models", Host="evil.example")
    assert (status, body["error"]["code"]) == (403, "host_not_allowed")
    assert (await shared.call("GET", "/livez", Host="evil.example"))[0] == 200


async def test_no_origin_is_allowed_by_default(shared: Service) -> None:
    preflight = {"Origin": "http://ui.internal:3000", "Access_Control_Request_Method": "POST", "Authorization": ""}
    status, _, headers = await shared.call("OPTIONS", CHAT, **preflight)
    assert status == 204
    assert not [name for name in headers if name.lower().startswith("access-control")]
    status, _, headers = await shared.call("POST", CHAT, ask(), Origin="https://evil.example")
    assert "Access-Control-Allow-Origin" not in headers


async def test_a_foreign_page_s_form_is_refused(shared: Service) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded"):
        status, body, _ = await shared.call("POST", CHAT, ask(), Origin="https://evil.example", Content_Type=kind)
        assert (status, body["error"]["code"]) == (403, "origin_not_allowed")


async def test_a_named_origin_is_named_back_everywhere(tmp_path: Path) -> None:
    origin = "http://ui.internal:3000"
    async with service(tmp_path, cors_origin=origin) as named:
        status, _, headers = await named.call(
            "OPTIONS", CHAT, Origin=origin, Access_Control_Request_Method="POST", Authorization=""
        )
        assert status == 204
        assert headers["Access-Control-Allow-Origin"] == origin
        assert "Authorization" in headers["Access-Control-Allow-Headers"]
        assert "Access-Control-Allow-Credentials" not in headers
        for body, status in ((ask(), 200), (ask(temperature="hot"), 400)):
            seen, _, headers = await named.call("POST", CHAT, body, Origin=origin)
            assert (seen, headers["Access-Control-Allow-Origin"], headers["Vary"]) == (status, origin, "Origin")
        sent = {"Authorization": f"Bearer {named.user}", "Origin": origin, "Content-Type": "application/json"}
        async with named.client.post(named.base + CHAT, data=json.dumps(ask(stream=True)), headers=sent) as stream:
            assert stream.headers["Access-Control-Allow-Origin"] == origin
            await stream.read()
        _, _, headers = await named.call("POST", CHAT, ask(), Origin="https://evil.example")
        assert "Access-Control-Allow-Origin" not in headers
        _, _, headers = await named.call("GET", "/v1/models", Origin=origin, Authorization="")
        assert headers["Access-Control-Allow-Origin"] == origin
