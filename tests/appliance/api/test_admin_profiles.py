"""Profiles over HTTP: reading, saving with ETags, drafts, deleting, judging; two people at once."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from appliance.profiles import etag_of
from appliance.profiles.strict import MOST_BYTES
from tests.appliance.api.service import Service, service

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEXT = "name: mine\nsummary: made by a test\nctx_size: 256\n"
PROFILES = {"quick": {"ctx_size": 256, "alias": "q"}, "other": {"ctx_size": 512}}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def box(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A service that serves the profile `quick`; `bad` is wrong."""
    folder: Path = tmp_path_factory.mktemp("box")
    async with service(folder, profiles=PROFILES, profile="quick") as running:
        (folder / "data/profiles/bad.yaml").write_text("name: bad\nctx_sise: 5\nparallel: many\n")
        yield running


async def ask(box: Service, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any, Any]:
    return await box.call(method, path, body, Authorization=f"Bearer {box.admin}", **headers)


async def put(box: Service, name: str, text: str, draft: bool = False, **headers: str) -> tuple[int, Any, Any]:
    return await ask(box, "PUT", f"/admin/profiles/{name}", {"text": text, "draft": draft}, **headers)


async def made(box: Service, name: str) -> str:
    """Save a new profile; its tag."""
    status, body, _ = await put(box, name, TEXT.replace("mine", name), If_None_Match="*")
    assert (status, body["rev"]) == (200, 1), body
    return str(body["etag"])


async def test_the_list_has_all_of_them_and_tells_which_serves(box: Service) -> None:
    status, body, _ = await ask(box, "GET", "/admin/profiles")
    assert status == 200
    assert (body["active"], body["fallback"]) == ("quick", "fallback")
    assert body["folder"].endswith("/data/profiles")
    rows = {row["name"]: row for row in body["profiles"]}
    assert {"quick", "other", "bad", "fallback", "long-doc"} <= set(rows)
    assert set(rows["other"]) == {
        "name", "rev", "etag", "source", "state", "n_errors", "n_warnings", "summary", "model", "ctx_size", "parallel",
        "threads", "type_k", "type_v", "fit", "fit_reason", "weights_bytes", "kv_bytes", "engine_bytes", "total_bytes",
        "budget_bytes", "spare_bytes", "cached", "last_used", "last_by", "last_tok_s", "is_fallback", "has_draft",
    }  # fmt: skip
    assert (rows["quick"]["state"], rows["bad"]["state"], rows["bad"]["n_errors"]) == ("active", "errors", 2)
    assert (rows["other"]["fit"], rows["other"]["ctx_size"], rows["other"]["model"]) == ("OK", 512, "tiny.gguf")
    assert rows["other"]["total_bytes"] > 0
    assert rows["bad"]["fit"] == "?"


async def test_a_users_list_has_no_folder_and_no_names_of_people(box: Service) -> None:
    status, body, _ = await box.call("GET", "/api/profiles")
    assert (status, body["folder"], body["active"]) == (200, None, "quick")
    assert {(row["last_by"], row["fit_reason"]) for row in body["profiles"]} == {("", None)}
    assert (await box.call("GET", "/api/profiles", Authorization=""))[0] == 401


async def test_a_profile_is_made_read_changed_and_taken_back(box: Service) -> None:
    first = await made(box, "made")
    status, body, headers = await ask(box, "GET", "/admin/profiles/made")
    assert (status, body["text"], body["problems"]) == (200, TEXT.replace("mine", "made"), [])
    assert headers["ETag"] == f'"{first}"' == f'"{etag_of(body["text"])}"'
    changed = body["text"].replace("256", "512")
    status, body, headers = await ask(
        box, "PUT", "/admin/profiles/made", {"text": changed, "note": "more room"},
        If_Match=f'"{first}"', X_Colibri_User="ann",
    )  # fmt: skip
    assert (status, body["rev"], body["text"]) == (200, 2, changed)
    assert headers["ETag"] == f'"{etag_of(changed)}"'
    assert [(h["rev"], h["by"], h["note"]) for h in body["history"]] == [(2, "ann", "more room"), (1, "admin", "")]
    old = (await ask(box, "GET", "/admin/profiles/made?rev=1"))[1]
    assert (old["rev"], old["etag"]) == (1, first)
    event = box.services.events.last(1)[0]
    assert (event.kind, event.text) == ("profile", "profile made was saved as revision 2 by ann: more room")
    assert (await ask(box, "DELETE", "/admin/profiles/made", If_Match=headers["ETag"]))[0] == 204
    assert (await ask(box, "GET", "/admin/profiles/made"))[0] == 404


async def test_of_two_who_edit_at_once_the_second_is_told(box: Service) -> None:
    tag = await made(box, "shared")
    ours, theirs = TEXT.replace("mine", "shared") + "threads: 1\n", TEXT.replace("mine", "shared") + "threads: 2\n"
    assert (await put(box, "shared", ours, If_Match=tag))[0] == 200
    status, body, _ = await put(box, "shared", theirs, If_Match=tag)
    assert (status, body["error"]["code"], body["error"]["etag"]) == (412, "profile_changed", etag_of(ours))
    assert (await ask(box, "GET", "/admin/profiles/shared"))[1]["text"] == ours


async def test_a_change_must_say_what_it_changes(box: Service) -> None:
    tag = await made(box, "said")
    text = TEXT.replace("mine", "said")
    status, body, _ = await put(box, "said", text)
    assert (status, body["error"]["code"], body["error"]["etag"]) == (428, "precondition_required", tag)
    assert (await put(box, "said", text, If_None_Match="*"))[0] == 412
    assert (await put(box, "nowhere", TEXT, If_Match=tag))[0] == 412
    assert (await ask(box, "DELETE", "/admin/profiles/said"))[0] == 428
    assert (await ask(box, "DELETE", "/admin/profiles/said", If_Match='"old"'))[0] == 412


async def test_a_wrong_text_is_refused_with_every_problem_and_its_place(box: Service) -> None:
    wrong = "name: wrong\nctx_size: lots\ntreads: 4\nsampling:\n  temp: -1\n"
    status, body, _ = await put(box, "wrong", wrong)
    error = body["error"]
    assert (status, error["code"]) == (400, "profile_invalid")
    assert [(p["line"], p["path"]) for p in error["problems"]] == [(2, "ctx_size"), (3, "treads"), (5, "sampling.temp")]
    assert error["problems"][1]["hint"] == "threads"
    assert set(error["problems"][0]) == {"line", "col", "severity", "path", "message", "hint"}
    assert (await ask(box, "GET", "/admin/profiles/wrong"))[0] == 404


async def test_a_wrong_file_can_be_read_with_its_problems(box: Service) -> None:
    status, body, _ = await ask(box, "GET", "/admin/profiles/bad")
    assert (status, body["text"].splitlines()[1]) == (200, "ctx_sise: 5")
    assert [p["line"] for p in body["problems"]] == [2, 3]


async def test_a_draft_may_be_wrong_and_takes_no_effect(box: Service) -> None:
    tag = await made(box, "sketch")
    status, body, headers = await put(box, "sketch", "name: sketch\nctx", draft=True, If_Match=tag)
    assert status == 200
    assert (body["draft"]["text"], body["etag"], headers["ETag"]) == ("name: sketch\nctx", tag, f'"{tag}"')
    assert body["draft"]["problems"]
    mine = body["draft"]["etag"]
    assert (await put(box, "sketch", "name: sketch\n", draft=True, If_Match=tag))[0] == 412, "the draft is replaced now"
    assert (await put(box, "sketch", "name: sketch\n", draft=True, If_Match=mine))[0] == 200
    row = next(r for r in (await ask(box, "GET", "/admin/profiles"))[1]["profiles"] if r["name"] == "sketch")
    assert (row["has_draft"], row["rev"]) == (True, 1)
    assert (await ask(box, "DELETE", "/admin/profiles/sketch?draft=true"))[0] == 204
    assert (await ask(box, "GET", "/admin/profiles/sketch"))[1]["draft"] is None


async def test_a_draft_alone_is_listed_and_read(box: Service) -> None:
    assert (await put(box, "idea", "name: idea", draft=True))[0] == 200
    status, body, headers = await ask(box, "GET", "/admin/profiles/idea")
    assert (status, body["etag"], body["text"], body["draft"]["text"]) == (200, None, "", "name: idea")
    assert "ETag" not in headers
    row = next(r for r in (await ask(box, "GET", "/admin/profiles"))[1]["profiles"] if r["name"] == "idea")
    assert row["state"] == "draft"
    status, body, _ = await put(box, "idea", TEXT.replace("mine", "idea"))
    assert (status, body["rev"], body["draft"]) == (200, 1, None)


async def test_what_serves_and_what_rescues_cannot_be_deleted(box: Service) -> None:
    tag = (await ask(box, "GET", "/admin/profiles/quick"))[1]["etag"]
    status, body, _ = await ask(box, "DELETE", "/admin/profiles/quick", If_Match=tag)
    assert (status, body["error"]["code"]) == (409, "profile_in_use")
    tag = (await ask(box, "GET", "/admin/profiles/fallback"))[1]["etag"]
    status, body, _ = await ask(box, "DELETE", "/admin/profiles/fallback", If_Match=tag)
    assert (status, body["error"]["code"]) == (409, "profile_protected")


@pytest.mark.parametrize(
    "name", ["..%2f..%2fetc%2fpasswd", "%2e%2e", "A", "x.yaml%00", ".drafts", ".history", "x%0a", "%C3%A9", "-x",
             "x" * 64, "a%20b"],
)  # fmt: skip
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
async def test_no_name_leaves_the_folder(box: Service, method: str, name: str) -> None:
    body = {"text": TEXT} if method == "PUT" else None
    status, answer, _ = await ask(box, method, f"/admin/profiles/{name}", body, If_Match="*")
    assert status in (400, 404)
    assert "Traceback" not in str(answer)
    folder = box.services.store.folder
    assert sorted(p.name for p in folder.iterdir() if p.name[0] != ".") == sorted(
        f"{n}.yaml" for n in box.services.store.names() if (folder / f"{n}.yaml").exists()
    )


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "word"),
    [
        ("PUT", "/admin/profiles/x", {"txt": "a"}, 400, "did you mean 'text'"),
        ("PUT", "/admin/profiles/x", {"text": "a", "session_id": 1}, 400, "session_id"),
        ("PUT", "/admin/profiles/x", {"text": 5}, 400, "a string expected"),
        ("PUT", "/admin/profiles/x", {}, 400, "text is missing"),
        ("PUT", "/admin/profiles/x", {"text": "a", "note": "n" * 201}, 400, "200"),
        ("PUT", "/admin/profiles/x", {"text": "a" * (MOST_BYTES + 1)}, 413, str(MOST_BYTES)),
        ("PUT", "/admin/profiles/x", {"text": "é" * (MOST_BYTES // 2 + 1)}, 413, str(MOST_BYTES)),
        ("POST", "/admin/profiles/validate", {"name": "x", "text": "a" * (MOST_BYTES + 1)}, 413, str(MOST_BYTES)),
        ("PUT", "/admin/profiles/x", b'{"text": "' + b"a" * (1 << 20) + b'"}', 413, "bytes"),
        ("PUT", "/admin/profiles/x", b"{", 400, "JSON"),
        ("POST", "/admin/profiles/x", {"text": "a"}, 405, "does not take POST"),
        ("GET", "/admin/profiles/quick?rev=one", None, 400, "whole number"),
        ("GET", "/admin/profiles/quick?rev=77", None, 404, "no revision 77"),
        ("GET", "/admin/profiles/quik", None, 404, "did you mean 'quick'"),
        ("GET", "/admin/profiles?all=1", None, 400, "no query"),
        ("DELETE", "/admin/profiles/nowhere", None, 404, "no profile 'nowhere'"),
    ],
)
async def test_a_wrong_request_has_its_status_and_its_sentence(
    box: Service, method: str, path: str, body: Any, status: int, word: str
) -> None:
    seen, answer, _ = await ask(box, method, path, body)
    assert (seen, word in answer["error"]["message"]) == (status, True), answer


async def test_validate_tells_every_problem_and_what_each_key_means(box: Service) -> None:
    text = "name: x\nctx_size: 64\nmodel: nowhere.gguf\ntemperature: 1\n"
    status, body, _ = await ask(box, "POST", "/admin/profiles/validate", {"name": "x", "text": text})
    assert status == 200
    found = {p["path"]: (p["line"], p["severity"]) for p in body["problems"]}
    assert found == {"model": (3, "warning"), "temperature": (4, "error")}
    row = body["fields"]["ctx_size"]
    assert (row["value"], row["kind"]) == (64, "engine")
    assert {"help", "kind", "default", "why", "value"} <= set(row)
    assert body["fields"]["sampling.temp"]["value"] is None
    assert "x" not in box.services.store.names()


async def test_the_edit_of_a_packaged_profile_goes_back_to_what_was_shipped(box: Service) -> None:
    shipped = (await ask(box, "GET", "/admin/profiles/long-doc"))[1]
    assert (shipped["rev"], shipped["source"]) == (0, "packaged")
    edited = shipped["text"] + "\n# a remark\n"
    status, body, _ = await put(box, "long-doc", edited, If_Match=shipped["etag"])
    assert (status, body["rev"], body["source"]) == (200, 1, "edited")
    assert (await ask(box, "DELETE", "/admin/profiles/long-doc", If_Match=body["etag"]))[0] == 204
    again = (await ask(box, "GET", "/admin/profiles/long-doc"))[1]
    assert (again["rev"], again["text"]) == (0, shipped["text"])
    assert [h["rev"] for h in again["history"]] == [1, 0]


async def test_of_ten_who_save_at_the_same_moment_one_wins(box: Service) -> None:
    tag = await made(box, "crowd")
    texts = [TEXT.replace("mine", "crowd") + f"threads: {i + 1}\n" for i in range(10)]
    found = await asyncio.gather(*(put(box, "crowd", text, If_Match=tag) for text in texts))
    assert sorted(status for status, _, _ in found) == [200] + [412] * 9
    (won,) = (body for status, body, _ in found if status == 200)
    assert (won["rev"], won["text"] in texts) == (2, True)
    assert {body["error"]["etag"] for status, body, _ in found if status == 412} == {won["etag"]}
    assert (await ask(box, "GET", "/admin/profiles/crowd"))[1]["text"] == won["text"]
