"""An OpenSSH server and client for one test run: own port, own host key, own user, nothing of the machine's touched.

As root it makes a user who is gone afterwards; elsewhere, and where such a user may not run our interpreter (it may lie
in root's home), the user who runs the tests takes the part. No password, no PAM, only this key, only from here.
"""

import contextlib
import os
import pwd
import shlex
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

SBIN = "/usr/sbin"
PRIVSEP = Path("/run/sshd")
ALIVE_S = 1
"""Seconds between the server's questions whether the client is still there; three without an answer end the session."""


@dataclass(frozen=True)
class Sshd:
    """A running server, and how to reach it."""

    user: str
    port: int
    folder: Path

    def argv(self, command: Sequence[str], **env: str) -> list[str]:
        """The client's command line that runs `command` there on a terminal, with `env` set there."""
        remote = shlex.join(["env", *(f"{name}={value}" for name, value in env.items()), *command])
        return [
            "ssh", "-tt", "-F", "/dev/null", "-p", str(self.port), "-i", str(self.folder / "key"),
            "-o", "IdentitiesOnly=yes", "-o", f"UserKnownHostsFile={self.folder / 'known'}",
            "-o", "StrictHostKeyChecking=yes", "-o", "LogLevel=ERROR", "-o", "SendEnv=NO_COLOR COLORTERM LANG",
            f"{self.user}@127.0.0.1", f"exec {remote}",
        ]  # fmt: skip


@contextlib.contextmanager
def sshd(folder: Path, interpreter: str) -> Iterator[Sshd]:
    """Start one whose user can run `interpreter`."""
    folder.chmod(0o755)
    with _user(folder, interpreter) as user, _privsep():
        for name in ("host", "key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        (folder / "known").write_text(f"[127.0.0.1]:{port} {(folder / 'host.pub').read_text()}")
        (folder / "authorised").write_bytes((folder / "key.pub").read_bytes())
        (folder / "authorised").chmod(0o644)
        (folder / "config").write_text(
            f"ListenAddress 127.0.0.1:{port}\nHostKey {folder / 'host'}\nAuthorizedKeysFile {folder / 'authorised'}\n"
            "PidFile none\nUsePAM no\nStrictModes no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n"
            f"PermitRootLogin prohibit-password\nAllowUsers {user}\nAcceptEnv NO_COLOR COLORTERM LANG\n"
            f"ClientAliveInterval {ALIVE_S}\nClientAliveCountMax 3\nPrintMotd no\nPrintLastLog no\n"
        )
        log = folder / "sshd.log"
        program = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:{SBIN}")
        assert program, "sshd is missing; scripts/test installs it"
        server = subprocess.Popen([program, "-D", "-f", str(folder / "config"), "-E", str(log)])
        try:
            _wait_for(port, server, log)
            yield Sshd(user, port, folder)
        finally:
            server.terminate()
            server.wait()


def _wait_for(port: int, server: "subprocess.Popen[bytes]", log: Path) -> None:
    until = time.monotonic() + 10
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1) as door:
            if door.recv(4) == b"SSH-":
                return
        assert server.poll() is None and time.monotonic() < until, f"sshd does not start: {log.read_text()[-1000:]}"
        time.sleep(0.05)


@contextlib.contextmanager
def _user(folder: Path, interpreter: str) -> Iterator[str]:
    me = pwd.getpwuid(os.getuid()).pw_name
    if os.getuid() != 0 or shutil.which("useradd", path=f"/usr/bin:{SBIN}") is None:
        yield me
        return
    name = f"colibri-{uuid.uuid4().hex[:8]}"
    home = folder / "home"
    home.mkdir()
    env = {**os.environ, "PATH": f"{os.environ['PATH']}:{SBIN}"}
    # A '*' is no password that anyone could give, and unlike '!' it does not lock the account.
    made = ["useradd", "--no-create-home", "--home-dir", str(home), "--shell", "/bin/sh", "--password", "*", name]
    subprocess.run(made, check=True, env=env, capture_output=True)
    try:
        os.chown(home, pwd.getpwnam(name).pw_uid, pwd.getpwnam(name).pw_gid)
        probe = ["runuser", "-u", name, "--", interpreter, "-c", "import textual"]
        can = subprocess.run(probe, capture_output=True, cwd="/", env=env).returncode == 0
        yield name if can else me
    finally:
        for _ in range(50):  # a session's last process may take a moment to go
            if subprocess.run(["userdel", name], env=env, capture_output=True).returncode in (0, 6):
                break
            time.sleep(0.1)


@contextlib.contextmanager
def _privsep() -> Iterator[None]:
    """sshd run by root wants an empty folder of its package, which only its service makes."""
    made = os.getuid() == 0 and not PRIVSEP.exists()
    if made:
        PRIVSEP.mkdir(mode=0o755)
    try:
        yield
    finally:
        if made:
            with contextlib.suppress(OSError):
                PRIVSEP.rmdir()
