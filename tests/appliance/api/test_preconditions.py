"""If-Match and If-None-Match: who may change what, and in which words the others are told."""

import pytest
from aiohttp.test_utils import make_mocked_request

from appliance.api.preconditions import check
from engine.errors import ColibriError

NOW = "3b1f00aa9c21d7e4"


def judged(current: str | None, **headers: str) -> str | None:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return check(make_mocked_request("PUT", "/", headers=sent), "the profile 'x'", current)


@pytest.mark.parametrize(
    "tag", [f'"{NOW}"', NOW, f'  "{NOW}" ', f'"other", "{NOW}"', f'W/"{NOW}", "{NOW}"', "*"]
)  # fmt: skip
def test_the_tag_that_was_read_lets_a_change_through(tag: str) -> None:
    assert judged(NOW, If_Match=tag) == NOW


@pytest.mark.parametrize("tag", ['"other"', "", '""', f'W/"{NOW}"', f'"{NOW}', f'"{NOW[:-1]}"', '"', ",,,", f"{NOW} x"])
def test_any_other_tag_is_a_conflict_that_tells_the_present_one(tag: str) -> None:
    with pytest.raises(ColibriError) as caught:
        judged(NOW, If_Match=tag)
    assert (caught.value.status, caught.value.code, caught.value.extra["etag"]) == (412, "profile_changed", NOW)


def test_something_new_may_be_made_with_or_without_saying_so() -> None:
    assert judged(None) is None
    assert judged(None, If_None_Match="*") is None


def test_a_change_without_a_word_of_what_it_changes_is_refused() -> None:
    with pytest.raises(ColibriError) as caught:
        judged(NOW)
    assert (caught.value.status, caught.value.code, caught.value.extra["etag"]) == (428, "precondition_required", NOW)


@pytest.mark.parametrize(
    ("current", "headers", "status"),
    [
        (NOW, {"If_None_Match": "*"}, 412),
        (None, {"If_Match": f'"{NOW}"'}, 412),
        (None, {"If_Match": "*"}, 412),
        (NOW, {"If_None_Match": f'"{NOW}"'}, 400),
        (NOW, {"If_Match": "*", "If_None_Match": "*"}, 400),
    ],
)
def test_what_cannot_be_meant_is_refused(current: str | None, headers: dict[str, str], status: int) -> None:
    with pytest.raises(ColibriError) as caught:
        judged(current, **headers)
    assert caught.value.status == status
    assert "\n" not in caught.value.message
