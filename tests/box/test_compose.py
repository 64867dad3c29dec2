"""The image as Compose runs it: it answers, it cannot do more than it must, and it comes back when it is hurt.

Needs Docker and the image (`./up --build`); runs only with `pytest -m box`.
"""

import json
import socket
import subprocess
import threading
import urllib.error

import pytest

from tests.box.conftest import Box

pytestmark = pytest.mark.box
MIRROR = "deb.debian.org"


def test_it_knows_the_capital_of_france(box: Box) -> None:
    assert "Paris" in box.ask("What is the capital of France?")


def test_alive_ready_and_counted(box: Box) -> None:
    assert box.get("/livez")[0] == box.get("/health")[0] == box.get("/readyz")[0] == 200
    assert box.get("/metrics")[0] == 200
    assert "healthy" in box.compose("ps", "--format", "json", "colibri")


def test_v1_is_open_here_and_admin_is_not(box: Box) -> None:
    assert "smollm2" in box.get("/v1/models")[1]
    assert box.get("/admin/state")[0] == 401


def test_keys_are_made_and_nobody_else_reads_them(box: Box) -> None:
    assert box.inside("stat", "-c", "%a", "/data/keys").strip() in {"600", "700"}


def test_it_is_nobody_with_nothing(box: Box) -> None:
    """Not root, no capability in effect, only SYS_NICE in reach, and no program can gain more."""
    pairs = (line.split(":", 1) for line in box.inside("cat", "/proc/self/status").splitlines() if ":" in line)
    status = {name: value.strip() for name, value in pairs}
    assert status["Uid"].split() == ["10001"] * 4
    assert int(status["CapEff"], 16) == 0
    assert int(status["CapBnd"], 16) & ~(1 << 23) == 0
    assert status["NoNewPrivs"] == "1"


def test_the_root_is_read_only_and_tmp_runs_nothing(box: Box) -> None:
    writable = "for d in / /etc /opt/colibri /opt/models /models /usr; do touch $d/x 2>/dev/null && echo $d; done; true"
    assert box.inside("sh", "-c", writable, user="0").strip() == ""
    assert box.inside("sh", "-c", "cp /bin/true /tmp/t && /tmp/t && echo ran; rm -f /tmp/t", check=False).strip() == ""


def test_memory_may_be_locked_as_far_as_this_machine_grants(box: Box) -> None:
    asked = int(box.setting("BOX_MEMLOCK", "-1"))
    assert box.inside("bash", "-c", "ulimit -l").strip() == ("unlimited" if asked < 0 else str(asked // 1024))


def test_the_network_leads_nowhere(box: Box) -> None:
    """No masquerading, so no answer finds its way back, and a DNS server that is nobody: true without a net as well."""
    container = box.compose("ps", "-q", "colibri").strip()
    facts = json.loads(docker("inspect", container))[0]
    networks = [json.loads(docker("network", "inspect", name))[0] for name in facts["NetworkSettings"]["Networks"]]
    assert [n["Options"]["com.docker.network.bridge.enable_ip_masquerade"] for n in networks] == ["false"]
    assert facts["HostConfig"]["Dns"] == ["127.0.0.1"]


def test_nothing_inside_reaches_the_world(box: Box) -> None:
    """Debian's mirror by name, and by number where this machine itself can reach it: the container does neither."""
    assert reached(box, f"socket.gethostbyname({MIRROR!r})") == ""
    try:
        address = socket.gethostbyname(MIRROR)
        socket.create_connection((address, 80), timeout=10).close()
    except OSError:
        address = "192.0.2.1"  # an address that belongs to nobody
    assert reached(box, f"socket.create_connection(({address!r}, 80), timeout=3)") == ""


def docker(*words: str) -> str:
    return subprocess.run(["docker", *words], capture_output=True, text=True, check=True, timeout=60).stdout


def reached(box: Box, act: str) -> str:
    """What `act`, run in the container, prints when it does not fail: "reached"."""
    script = f"import socket\ntry:\n    {act}\n    print('reached')\nexcept OSError:\n    pass"
    return box.inside("python", "-c", script).strip()


def test_a_killed_worker_ends_its_answer_with_an_error_and_comes_back(box: Box) -> None:
    """kill -9 in the middle of a stream: an error event and no [DONE]; /health says so; the next answer is right."""
    before = box.worker()
    body = {"model": "smollm2", "stream": True, "temperature": 0, "max_tokens": 2000, "ignore_eos": True,
            "messages": [{"role": "user", "content": "Count from one to a thousand."}]}  # fmt: skip
    lines = []
    with box.post("/v1/chat/completions", body) as stream:
        for raw in stream:
            if not raw.startswith(b"data:"):
                continue
            lines.append(raw[5:].decode().strip())
            if len(lines) == 5:
                box.kill(before)
    assert "error" in json.loads(lines[-1]), lines[-1]
    assert "[DONE]" not in lines
    box.wait_for("/readyz", 200)
    assert box.worker() != before
    assert "Paris" in box.ask("What is the capital of France?")


def test_health_says_so_while_the_worker_is_away(box: Box) -> None:
    seen: list[str] = []
    watcher = threading.Thread(target=lambda: seen.append(box.wait_for("/health", 503, within_s=60)))
    watcher.start()
    box.kill(box.worker())
    watcher.join()
    assert json.loads(seen[0])["error"]["code"] in {"model_loading", "engine_down", "unavailable"}
    assert box.get("/livez")[0] == 200
    box.wait_for("/health", 200)


def test_a_second_start_compiles_nothing(box: Box) -> None:
    """Kernels live on the volume: the same files, untouched, serve the next container."""
    listing = "find /data/kernels -type f -printf '%P %T@\\n' | sort"
    before = box.inside("sh", "-c", listing)
    assert before.strip()
    box.compose("up", "-d", "--wait", "--no-build", "--force-recreate", "colibri")
    box.find()
    assert box.inside("sh", "-c", listing) == before


def test_a_bad_request_gets_a_sentence(box: Box) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        box.ask("hi", temperature="warm")
    error = json.loads(caught.value.read())["error"]
    assert caught.value.code == 400 and error["param"] == "temperature" and "Traceback" not in error["message"]


def test_stopping_is_quick_and_clean(box: Box) -> None:
    box.compose("stop", "-t", "20", "colibri")
    assert '"ExitCode":0' in box.compose("ps", "-a", "--format", "json", "colibri").replace(" ", "")
    box.compose("up", "-d", "--wait", "--no-build", "colibri")
    box.find()
