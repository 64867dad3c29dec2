"""A line of the key file and the key it means, both ways; what is wrong with one, without its secret."""

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.key_lines import ROLES, Key, digest, key_of, line_of
from appliance.lane import LANES
from engine.errors import UsageError

word = st.from_regex(r"[A-Za-z0-9._:@-]{1,12}", fullmatch=True)
keys = st.builds(
    Key, word, st.sampled_from(ROLES), st.binary(min_size=32, max_size=32), st.sampled_from(LANES),
    st.none() | st.integers(1, 10_000), st.lists(word, max_size=3).map(tuple), st.lists(word, max_size=3).map(tuple),
)  # fmt: skip


@given(keys)
def test_a_key_is_the_same_after_being_written_and_read(key: Key) -> None:
    assert key_of(line_of(key)) == key


def test_a_plain_secret_and_its_digest_are_the_same_key() -> None:
    hashed = "sha256:" + sha256(b"open sesame".replace(b" ", b"-")).hexdigest()
    assert key_of("user open-sesame tom") == key_of(f"user {hashed} tom")
    assert digest("open-sesame").hex() in hashed


def test_each_role_opens_what_it_is_for() -> None:
    opened = {role: [a for a in ("probe", "watch", "user", "admin") if Key("k", role, b"").may(a)] for role in ROLES}
    assert opened == {
        "metrics": ["probe", "watch"],
        "user": ["probe", "watch", "user"],
        "admin": ["probe", "watch", "user", "admin"],
    }


def test_lists_of_models_and_profiles_both_have_to_allow() -> None:
    free, model, both = (key_of(f"user s k {more}") for more in ("", "models=a,b", "models=a profiles=p"))
    assert free and model and both
    assert free.may_use(("x",), None)
    assert model.may_use(("x", "b"), None) and not model.may_use(("x",), "p")
    assert both.may_use(("a",), "p") and not both.may_use(("a",), None) and not both.may_use(("b",), "p")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("root s3cret", "role"),
        ("user", "role secret"),
        ("user sha256:s3cret", "64 hex"),
        ("user s3cret a b", "behind the name"),
        ("user s3cret a rat=5", "behind the name"),
        ("user s3cret a rate=0", "1 to 10000"),
        ("user s3cret a rate=10001", "1 to 10000"),
        ("user s3cret a rate=\u0663", "1 to 10000"),
        ("user s3cret a rate=1 rate=2", "rate twice"),
        ("user s3cret a lane=fast", "lane=interactive"),
        ("user s3cret a models=", "1 to 64 names"),
        ("user s3cret a profiles=,", "1 to 64 names"),
        ("user s3cret na/me", "letters"),
        ("user s3cret " + "n" * 65, "letters"),
    ],
)
def test_a_spoilt_line_is_refused_in_words_without_its_secret(line: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        key_of(line)
    assert "s3cret" not in caught.value.message
