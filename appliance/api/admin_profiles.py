"""Profiles over HTTP: list, read, save, delete, judge. Not here: files and revisions (appliance/profiles), swaps.

Every change says by ETag what it replaces, so two people who edit at once cannot lose each other's work unseen.
"""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

from aiohttp import web

from appliance.api import preconditions
from appliance.api.admin_swaps import BODY_CAP, answer, check_size, remark, user
from appliance.api.body import read_object
from appliance.api.errors import ProfileInUse
from appliance.api.fields import parse_strictly
from appliance.api.listing import Listing
from appliance.api.query import known_only, whole, word
from appliance.api.schema import SaveProfileRequest, ValidateProfileRequest
from appliance.api.services import SERVICES, Services
from appliance.model_files import existing_model
from appliance.profiles import Checked, NoSuchProfile, ProfileStore, examine, fields
from engine.errors import ColibriError

LISTING = web.AppKey("listing", Listing)


async def many(request: web.Request) -> web.Response:
    """For the operator: with folder, users and reasons."""
    return answer(await _list(request))


async def public(request: web.Request) -> web.Response:
    """GET /api/profiles, for whoever may ask the model: without what only the operator should know."""
    document = await _list(request)
    hidden = {"last_by": "", "fit_reason": None}
    rows = [{**row, **hidden} for row in document["profiles"]]
    return answer({**document, "folder": None, "profiles": rows})


async def _list(request: web.Request) -> dict[str, Any]:
    known_only(request)
    services = request.app[SERVICES]
    now = services.swapper.in_force
    return {
        "active": now.name or None, "folder": str(services.store.folder), "fallback": now.settings.fallback,
        "profiles": await request.app[LISTING].rows(),
    }  # fmt: skip


async def one(request: web.Request) -> web.Response:
    """The text in force or, with `?rev=`, an earlier one."""
    known_only(request, "rev")
    rev = whole(request, "rev", None, 0, 2**31 - 1)
    return await _document(request.app[SERVICES], request.match_info["name"], rev)


async def save(request: web.Request) -> web.Response:
    """A new revision, or with `draft` a text beside the profile that takes no effect."""
    known_only(request)
    services, name = request.app[SERVICES], request.match_info["name"]
    body, _ = await read_object(request, BODY_CAP)
    ask = parse_strictly(SaveProfileRequest, body)
    check_size(ask.text)
    store, by, note, is_draft = services.store, user(request), remark(ask.note), bool(ask.draft)
    current = await asyncio.to_thread(_current, store, name, is_draft)
    if_match = preconditions.check(request, f"the profile '{name}'", current)
    saved = await asyncio.to_thread(
        store.save, name, ask.text, if_match=if_match, by=by, note=note, draft=is_draft
    )
    if not is_draft and saved.etag != current:
        text = f"profile {name} was saved as revision {saved.rev} by {by}{': ' + note if note else ''}"
        services.events.tell("profile", text, profile=name, rev=saved.rev, by=by)
    return await _document(services, name, None)


async def delete(request: web.Request) -> web.Response:
    """Take the edit away, so that the packaged text counts again if there is one; with `?draft=true` only the draft."""
    known_only(request, "draft")
    services, name = request.app[SERVICES], request.match_info["name"]
    store, by = services.store, user(request)
    if word(request, "draft", "false", ("true", "false")) == "true":
        await asyncio.to_thread(store.discard, name)
        return web.Response(status=204)
    stored = await asyncio.to_thread(store.text, name)
    swap = services.swapper.current
    if name == services.swapper.in_force.name or (swap is not None and name == swap.new):
        raise ProfileInUse(f"'{name}' serves now or is about to; swap to another profile, then delete it")
    tag = preconditions.check(request, f"the profile '{name}'", stored.etag)
    await asyncio.to_thread(store.delete, name, if_match=tag or stored.etag, by=by)
    services.events.tell("profile", f"profile {name} was deleted by {by}", profile=name, by=by)
    return web.Response(status=204)


async def validate(request: web.Request) -> web.Response:
    """Every problem of a text at once, and what each key means; nothing is kept."""
    body, _ = await read_object(request, BODY_CAP)
    ask = parse_strictly(ValidateProfileRequest, body)
    check_size(ask.text)
    services = request.app[SERVICES]
    checked = await asyncio.to_thread(_judge, services.store, services.settings.models_dir, ask.name, ask.text)
    problems = [problem.json() for problem in checked.problems]
    return answer({"problems": problems, "fields": fields(checked.values)})


def _judge(store: ProfileStore, models_dir: Path | None, name: str, text: str) -> Checked:
    """The model is looked for as well; that it is not there yet keeps nobody from saving, so it is a warning."""
    missing: list[str] = []

    def find(model: str) -> object:
        try:
            return existing_model(model, models_dir)
        except ColibriError as error:
            missing.append(error.message)
            raise

    checked = examine(text, name, [*store.names(), name], find)
    checked.problems = [
        replace(problem, severity="warning") if problem.message in missing else problem for problem in checked.problems
    ]
    return checked


def _current(store: ProfileStore, name: str, is_draft: bool) -> str | None:
    """The tag of what a save replaces."""
    draft = store.draft(name) if is_draft else None
    if draft is not None:
        return draft.etag
    try:
        return store.text(name).etag
    except NoSuchProfile:
        return None


async def _document(services: Services, name: str, rev: int | None) -> web.Response:
    document = await asyncio.to_thread(_read, services.store, name, rev)
    etag = document["etag"]
    return answer(document, headers=preconditions.quoted(etag) if etag is not None else None)


def _read(store: ProfileStore, name: str, rev: int | None) -> dict[str, Any]:
    draft = store.draft(name)
    document: dict[str, Any] = {
        "name": name, "rev": 0, "etag": None, "source": "edited", "text": "", "problems": [], "draft": None,
        "history": [],
    }  # fmt: skip
    if draft is not None:
        document["draft"] = {"text": draft.text, "etag": draft.etag, "problems": _problems(store, name, draft.text)}
    try:
        stored = store.text(name, rev)
    except NoSuchProfile:
        if draft is None or rev is not None:
            raise
        return document  # a draft and nothing else
    # A file's own bytes are judged, they may be no text at all.
    problems = _problems(store, name, None if rev is None else stored.text)
    return {
        **document, "rev": stored.rev, "etag": stored.etag, "source": stored.source, "text": stored.text,
        "problems": problems, "history": store.history(name),
    }  # fmt: skip


def _problems(store: ProfileStore, name: str, text: str | None) -> list[dict[str, Any]]:
    return [problem.json() for problem in store.examine(name, text).problems]
