"""Profiles on the disk: overlay, versions, drafts, conflicts, two writers, full disks. Not here: checking."""

import json
import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from appliance.profiles import BadProfile, Conflict, NoSuchProfile, NotSaved, Profile, ProfileStore, Protected
from appliance.profiles.store import BY_HAND, PACKAGED
from engine.errors import UsageError
from tests.appliance.cli.shell import environment

SHIPPED = ["batch-tag", "fallback", "long-doc", "quick-verify"]


@pytest.fixture
def store(tmp_path: Path) -> ProfileStore:
    return ProfileStore(tmp_path)


def text(ctx: int, name: str = "mine") -> str:
    return f"# words\nname: {name}\nctx_size: {ctx}\n"


def saved(store: ProfileStore, ctx: int, name: str = "mine", **more: str) -> Profile:
    there = name in store.names()
    found = store.save(name, text(ctx, name), if_match=store.text(name).etag if there else None, **more)
    assert isinstance(found, Profile)
    return found


def test_the_shipped_profiles_are_revision_0_until_they_are_edited(store: ProfileStore) -> None:
    assert store.names() == SHIPPED
    for name in SHIPPED:
        found = store.load(name)
        raw = (PACKAGED / f"{name}.yaml").read_bytes()
        assert (found.rev, found.source, found.etag) == (0, "packaged", sha256(raw).hexdigest()[:16])
        assert found.text.encode() == raw and found.summary and "summary" not in found.values


def test_an_edit_lies_over_the_packaged_file_and_deleting_it_brings_that_back(store: ProfileStore) -> None:
    first = saved(store, 512, "long-doc")
    assert (first.rev, first.source, first.values) == (1, "edited", {"ctx_size": 512})
    assert store.load("long-doc") == first
    store.delete("long-doc", if_match=first.etag)
    assert store.load("long-doc").rev == 0
    assert saved(store, 1024, "long-doc").rev == 2, "revisions are never used twice"
    assert store.load("long-doc", 1).values == {"ctx_size": 512} and store.load("long-doc", 0).rev == 0


def test_every_version_is_kept_with_who_when_and_why(store: ProfileStore) -> None:
    for ctx in (1, 2, 3):
        saved(store, ctx, by="ops", note=f"try {ctx}")
    found = store.history("mine")
    assert [(v["rev"], v["by"], v["note"]) for v in found] == [(rev, "ops", f"try {rev}") for rev in (3, 2, 1)]
    assert found[0]["saved"] >= found[1]["saved"] >= found[2]["saved"] > 1.7e9
    assert [store.load("mine", rev).values["ctx_size"] for rev in (1, 2, 3)] == [1, 2, 3]
    assert [v["etag"] for v in found] == [store.text("mine", v["rev"]).etag for v in found]
    assert [v["rev"] for v in store.history("fallback")] == [0]


def test_saving_what_is_there_makes_no_version(store: ProfileStore) -> None:
    saved(store, 7)
    assert saved(store, 7).rev == 1
    packaged = store.text("fallback")
    assert store.save("fallback", packaged.text, if_match=packaged.etag).rev == 0
    assert not (store.folder / "fallback.yaml").exists()


def test_a_file_changed_with_an_editor_is_the_next_revision_and_never_lost(store: ProfileStore) -> None:
    saved(store, 1)
    (store.folder / "mine.yaml").write_text(text(2))
    assert (store.load("mine").rev, store.text("mine").note) == (2, BY_HAND)
    assert [v["rev"] for v in store.history("mine")] == [2, 1]
    assert saved(store, 3).rev == 3
    assert [store.load("mine", rev).values["ctx_size"] for rev in (1, 2, 3)] == [1, 2, 3]


def test_a_bad_file_hides_no_other_and_is_told_with_all_its_problems(store: ProfileStore) -> None:
    store.folder.mkdir()
    (store.folder / "bad.yaml").write_text("name: bad\nctx_sise: 1\nthreads: 010\n")
    (store.folder / "latin.yaml").write_bytes(b"name: caf\xe9\n")
    (store.folder / "huge.yaml").write_bytes(b"#" * 100_000)
    (store.folder / "folder.yaml").mkdir()
    os.mkfifo(store.folder / "pipe.yaml")
    (store.folder / ".hidden.yaml").write_text("")
    (store.folder / "Not A Name.yaml").write_text("")
    (store.folder / "other.yml").write_text("")
    assert store.names() == sorted([*SHIPPED, "bad", "latin", "huge"])
    assert store.misnamed() == ["Not A Name.yaml", "other.yml"]
    with pytest.raises(BadProfile, match=r"profile bad line 2: nothing reads .* \(and 1 more\)") as caught:
        store.load("bad")
    assert (caught.value.status, caught.value.code, caught.value.exit_code) == (400, "profile_invalid", 2)
    assert [p["line"] for p in caught.value.extra["problems"]] == [2, 3]  # type: ignore[attr-defined]
    assert store.text("bad").text.startswith("name: bad") and store.text("latin").text == "name: caf\ufffd\n"
    assert not store.examine("huge").is_good and store.load("long-doc")
    n_open = len(os.listdir("/proc/self/fd"))
    for name in ("folder", "pipe"):
        with pytest.raises(NoSuchProfile, match=f"no profile '{name}'"):
            store.load(name)
    assert len(os.listdir("/proc/self/fd")) == n_open


@pytest.mark.parametrize("name", ["../fallback", "/etc/passwd", "A", "", "a b", ".history", "a" * 64, "x/y"])
def test_a_profile_name_is_no_path(store: ProfileStore, name: str) -> None:
    for act in (
        lambda: store.load(name), lambda: store.draft(name), lambda: store.history(name),
        lambda: store.save(name, text(1), if_match=None), lambda: store.delete(name, if_match="*"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match="is no profile name"):
            act()


def test_an_unknown_profile_or_revision_names_those_there_are(store: ProfileStore) -> None:
    with pytest.raises(NoSuchProfile, match=r"'longdoc' among batch-tag, .*did you mean 'long-doc'") as caught:
        store.load("longdoc")
    assert (caught.value.status, caught.value.code) == (404, "profile_not_found")
    saved(store, 1)
    with pytest.raises(NoSuchProfile, match="the profile 'mine' has no revision 5; there are: 1"):
        store.text("mine", 5)
    with pytest.raises(NoSuchProfile):
        store.history("longdoc")


def test_whoever_saves_over_another_s_version_is_told(store: ProfileStore) -> None:
    first = saved(store, 1)
    second = saved(store, 2)
    with pytest.raises(Conflict, match="was changed to") as caught:
        store.save("mine", text(3), if_match=first.etag)
    assert (caught.value.status, caught.value.code) == (412, "profile_changed")
    assert caught.value.extra["etag"] == second.etag
    with pytest.raises(Conflict, match="is there already"):
        store.save("mine", text(3), if_match=None)
    with pytest.raises(Conflict, match="is not there any more"):
        store.save("new", text(3, "new"), if_match=first.etag)
    assert store.load("mine") == second


def test_what_is_wrong_is_not_saved_and_changes_nothing(store: ProfileStore) -> None:
    before = saved(store, 1)
    for wrong in ("", "name: mine\nctx_sise: 1\n", "name: other\n", text(1) * 4000, "name: mine\nalias: \ud800\n"):
        with pytest.raises(BadProfile):
            store.save("mine", wrong, if_match=before.etag)
    assert store.load("mine") == before and len(store.history("mine")) == 1


def test_a_draft_may_be_wrong_takes_no_effect_and_ends_with_the_next_save(store: ProfileStore) -> None:
    first = saved(store, 1)
    draft = store.save("mine", "name: mine\nctx_si", if_match=first.etag, draft=True)
    assert store.draft("mine") is not None and store.draft("mine").etag == draft.etag  # type: ignore[union-attr]
    assert store.load("mine") == first and store.names() == [*SHIPPED[:3], "mine", SHIPPED[3]]
    with pytest.raises(Conflict):
        store.save("mine", "name: mine\n", if_match=first.etag, draft=True)
    store.save("mine", "name: mine\nctx_size", if_match=draft.etag, draft=True)
    saved(store, 2)
    assert store.draft("mine") is None
    store.save("new", "name: n", if_match=None, draft=True)
    assert "new" not in store.names() and "new" in store.names(drafts=True)
    store.discard("new")
    assert "new" not in store.names(drafts=True)


def test_the_net_stays(store: ProfileStore) -> None:
    safe = saved(store, 64, "fallback")
    with pytest.raises(Protected, match="cannot be deleted") as caught:
        store.delete("fallback", if_match=safe.etag)
    assert (caught.value.status, caught.value.code) == (409, "profile_protected")
    with pytest.raises(Protected, match="as shipped"):
        store.delete("long-doc", if_match="*")
    mine = saved(store, 1)
    store.save("user", "name: user\nfallback: mine\n", if_match=None)
    with pytest.raises(Protected, match="'mine' is the fallback of user"):
        store.delete("mine", if_match=mine.etag)
    with pytest.raises(Conflict):
        store.delete("user", if_match="0")
    store.delete("user", if_match=store.text("user").etag)
    store.delete("mine", if_match=mine.etag)
    assert store.names() == SHIPPED and [v["rev"] for v in store.history("mine")] == [1]
    assert store.load("mine", 1) == mine


def test_two_writing_processes_lose_no_version(store: ProfileStore) -> None:
    """Each saves 25 versions on top of whatever is there; on a conflict it looks again."""
    program = """
import sys
from pathlib import Path
from appliance.profiles import Conflict, ProfileStore
store, who = ProfileStore(Path(sys.argv[1])), sys.argv[2]
for n in range(25):
    while True:
        there = store.text("mine").etag if "mine" in store.names() else None
        try:
            store.save("mine", f"name: mine\\nsummary: {who} {n}\\n", if_match=there, by=who)
            break
        except Conflict:
            pass
"""
    words = [sys.executable, "-c", program, str(store.folder.parent)]
    runs = [subprocess.Popen([*words, who], env=environment(), stderr=subprocess.PIPE) for who in "ab"]
    assert [run.communicate(timeout=60)[1] for run in runs] == [b"", b""]
    found = store.history("mine")
    assert [v["rev"] for v in found] == list(range(50, 0, -1))
    told = [store.load("mine", v["rev"]).summary for v in reversed(found)]
    assert [s for s in told if s[0] == "a"] == [f"a {n}" for n in range(25)]
    assert [s for s in told if s[0] == "b"] == [f"b {n}" for n in range(25)]
    assert store.load("mine").summary == told[-1]


def test_a_kill_between_any_two_steps_leaves_the_old_or_the_new_version(tmp_path: Path) -> None:
    """A child for each number ends at its so many-th rename or fsync of a folder during the second save."""
    steps = range(1, 7)
    for at in steps:
        saved(ProfileStore(tmp_path / str(at)), 1)
    program = """
import os, sys
from pathlib import Path
import appliance.profiles.disk as disk
from appliance.profiles import ProfileStore
def ending(act):
    def run(*words):
        global left
        left -= 1
        if not left:
            os._exit(9)
        return act(*words)
    return run
os.replace = ending(os.replace)
disk.sync_folder = ending(disk.sync_folder)
for left in map(int, sys.argv[2:]):
    store = ProfileStore(Path(sys.argv[1], str(left)))
    pid = os.fork()
    if not pid:
        store.save("mine", "name: mine\\nctx_size: 2\\n", if_match="*")
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9, left
"""
    words = [sys.executable, "-c", program, str(tmp_path), *map(str, steps)]
    done = subprocess.run(words, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    revs = []
    for at in steps:
        store = ProfileStore(tmp_path / str(at))
        now = store.load("mine")
        revs.append(now.rev)
        assert (now.rev, now.values["ctx_size"]) in ((1, 1), (2, 2))
        assert saved(store, 3).rev == now.rev + 1
        sizes = [store.load("mine", v["rev"]).values["ctx_size"] for v in store.history("mine")]
        assert sizes == ([3, 2, 1] if now.rev == 2 else [3, 1])
        assert [p.name for p in store.folder.rglob("*.tmp")] == []
    assert revs == sorted(revs) and set(revs) == {1, 2}


def test_a_damaged_note_beside_a_version_costs_the_note_only(store: ProfileStore) -> None:
    saved(store, 1, by="ops")
    (store.folder / ".history" / "mine" / "0001.json").write_text("{")
    (version,) = store.history("mine")
    assert (version["rev"], version["by"]) == (1, "") and store.load("mine").rev == 1
    (store.folder / ".history" / "mine" / "0001.json").write_text(json.dumps([1]))
    assert store.history("mine")[0]["rev"] == 1


def test_a_folder_nobody_may_write_in_is_named_with_owner_and_mode(tmp_path: Path) -> None:
    (tmp_path / "profiles").write_text("a file where a folder should be")
    with pytest.raises(NotSaved, match=r"profiles in .*profiles cannot be written \(.*belongs to uid \d+, mode \d+"):
        ProfileStore(tmp_path).save("mine", text(1), if_match=None)
    assert ProfileStore(tmp_path).names() == SHIPPED


def test_a_full_disk_leaves_the_version_before(store: ProfileStore) -> None:
    """RLIMIT_FSIZE refuses the bytes as a full disk would, with another number."""
    first = saved(store, 1)
    program = """
import resource, signal, sys
from pathlib import Path
from appliance.profiles import NotSaved, ProfileStore
store = ProfileStore(Path(sys.argv[1]))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (5, 5))
try:
    store.save("mine", "name: mine\\nctx_size: 2\\n", if_match=sys.argv[2])
except NotSaved as error:
    sys.exit(f"told: {error.message}")
"""
    words = [sys.executable, "-c", program, str(store.folder.parent), first.etag]
    done = subprocess.run(words, env=environment(), capture_output=True, text=True)
    assert done.returncode == 1 and "told: the profiles in" in done.stderr and "cannot be written (" in done.stderr
    assert store.load("mine") == first and list(store.folder.rglob("*.tmp")) == []
