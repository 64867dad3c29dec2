"""/openapi.json, assembled from the table of routes and the pydantic models. Not here: either of them."""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pydantic.json_schema import models_json_schema

from appliance.api.services import VERSION

if TYPE_CHECKING:
    from appliance.api.routes import Route

REFERENCE = "#/components/schemas/{model}"
ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}


def document(routes: Iterable["Route"]) -> dict[str, Any]:
    """OpenAPI 3.1 of all routes."""
    routes = tuple(routes)
    bodies = list(dict.fromkeys(route.body for route in routes if route.body is not None))
    refs, schemas = models_json_schema([(body, "validation") for body in bodies], ref_template=REFERENCE)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        ref = refs[(route.body, "validation")] if route.body is not None else None
        paths.setdefault(public_path(route.path), {})[route.method.lower()] = _operation(route, ref)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Colibri", "version": VERSION},
        "paths": paths,
        "components": {
            "schemas": {**schemas.get("$defs", {}), "Error": ERROR},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def public_path(pattern: str) -> str:
    """aiohttp's `{id:.+}` is OpenAPI's `{id}`."""
    return re.sub(r"\{(\w+):[^}]*\}", r"{\1}", pattern)


def _operation(route: "Route", ref: Any) -> dict[str, Any]:
    content: dict[str, Any] = {route.answers: {}}
    if route.streams:
        content["text/event-stream"] = {}
    error = {
        "description": "Error",
        "content": {"application/json": {"schema": {"$ref": REFERENCE.format(model="Error")}}},
    }
    places = {"path": re.findall(r"\{(\w+)", route.path), "query": route.query, "header": route.headers}
    parameters = [
        {"name": name, "in": place, "required": place == "path", "schema": {"type": "string"}}
        for place, names in places.items()
        for name in names
    ]
    operation: dict[str, Any] = {
        "summary": route.summary,
        "security": [] if route.access == "probe" else [{"key": []}],
        "responses": {"200": {"description": "OK", "content": content}, "default": error},
    }
    if parameters:
        operation["parameters"] = parameters
    if ref is not None:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": ref}}}
    if route.form:
        fields = {"file": {"type": "string", "format": "binary"}, **{name: {"type": "string"} for name in route.form}}
        form = {"schema": {"type": "object", "required": list(fields), "properties": fields}}
        operation["requestBody"] = {"required": True, "content": {"multipart/form-data": form}}
    return operation
