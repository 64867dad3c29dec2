"""The application as a function of its services. Not here: sockets, signals, start and stop (serve.py)."""

from aiohttp import HttpVersion11, web

from appliance.api.admin_memory import SCANNER
from appliance.api.admin_profiles import LISTING
from appliance.api.auth import ACCESS, auth
from appliance.api.doors import doors
from appliance.api.errors import UnmetExpectation, error_response
from appliance.api.health import live
from appliance.api.listing import Listing
from appliance.api.middleware import answer, on_prepare
from appliance.api.routes import ROUTES
from appliance.api.services import SERVICES, Services
from appliance.residency import Scanner


def make_app(services: Services) -> web.Application:
    """All routes behind, from the outside in: error shape and log, hosts and origins, keys."""
    # Bodies are read by body.py under its own cap; aiohttp's never applies.
    app = web.Application(middlewares=[answer, doors, auth], client_max_size=services.body_cap)
    app[SERVICES] = services
    app[LISTING] = Listing(services.store, services.swapper)
    app[SCANNER] = Scanner()
    app[ACCESS] = {}
    for route in ROUTES:
        resource = app.router.add_resource(route.path)
        resource.add_route(route.method, route.handler, expect_handler=_expect)
        if route.method == "GET":
            resource.add_route("HEAD", route.handler, expect_handler=_expect)
        app[ACCESS][resource] = route.access
    app.on_response_prepare.append(on_prepare)
    app.on_shutdown.append(_end_streams)
    services.metrics.ask(lambda: live(services))
    return app


async def _end_streams(app: web.Application) -> None:
    """Streams of events end in order; the server would else wait for their clients."""
    app[SERVICES].events.close()


async def _expect(request: web.Request) -> web.StreamResponse | None:
    """Tell a client that waits before it sends its body to go on; any other expectation cannot be met."""
    if request.version < HttpVersion11:
        return None  # HTTP/1.0 has no expectations
    if request.headers["Expect"].lower() != "100-continue":
        return error_response(UnmetExpectation("the Expect header asks for something else than 100-continue"))
    assert request.transport is not None
    await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    request.writer.output_size = 0  # handle_error takes any byte for an answer under way
    return None
