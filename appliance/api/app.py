"""The application as a function of its services. Not here: sockets, signals, start and stop (serve.py)."""

from aiohttp import web

from appliance.api.auth import ACCESS, auth
from appliance.api.doors import doors
from appliance.api.health import live
from appliance.api.middleware import answer, on_prepare
from appliance.api.routes import ROUTES
from appliance.api.services import SERVICES, Services


def make_app(services: Services) -> web.Application:
    """All routes behind, from the outside in: error shape and log, hosts and origins, keys."""
    # Bodies are read by body.py under its own cap; aiohttp's never applies.
    app = web.Application(middlewares=[answer, doors, auth], client_max_size=services.body_cap)
    app[SERVICES] = services
    app[ACCESS] = {}
    for route in ROUTES:
        resource = app.router.add_resource(route.path)
        resource.add_route(route.method, route.handler)
        if route.method == "GET":
            resource.add_route("HEAD", route.handler)
        app[ACCESS][resource] = route.access
    app.on_response_prepare.append(on_prepare)
    services.metrics.ask(lambda: live(services))
    return app
