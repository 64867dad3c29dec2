"""Records the README's session: real commands against the service that ./up started, with what they answered.

    ./up && python scripts/session.py && python scripts/readme.py

Not here: what the README says around it.
"""

import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.house import ROOT

CHAT = "curl -s http://127.0.0.1:8080/v1/chat/completions -H 'Content-Type: application/json' -d "
MODEL = "/opt/models/SmolLM2-135M-Instruct.Q4_1.gguf"
COMMANDS = [
    CHAT + """'{
  "model": "smollm2", "temperature": 0, "messages": [
    {"role": "system", "content": "You are a helpful assistant. Answer in one sentence."},
    {"role": "user", "content": "What is the capital of France?"}]}'""",
    CHAT.replace("-s", "-sN") + """'{
  "model": "smollm2", "temperature": 0, "max_tokens": 3, "stream": true, "stream_options": {"include_usage": true},
  "messages": [{"role": "user", "content": "Say hello."}]}'""",
    CHAT + """'{"model": "smollm2", "max_tokns": 3, "messages": [{"role": "user", "content": "Hi"}]}'""",
    f"docker compose exec colibri colibri logits -m {MODEL} --tokens 504,3575,282 --top 2 --json",
    f"docker compose exec colibri colibri run -m {MODEL} -c 9000000 -p Hi",
    "docker compose exec colibri colibri profile list",
    "docker compose exec colibri colibri profile apply long-doc --note 'a long report'",
    "docker compose exec colibri colibri status",
    "docker compose exec colibri colibri profile apply quick-verify",
]


def main() -> None:
    if "Paris" not in subprocess.run(["bash", "-c", COMMANDS[0]], capture_output=True, text=True).stdout:
        sys.exit("the service does not answer as it should; start it with ./up, then record again")
    parts = []
    for command in COMMANDS:
        done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True)
        said = re.sub(r"\x1b\[[0-9;]*[A-Za-z]|[^\n]*\r(?!\n)", "", done.stdout + done.stderr).replace("\r\n", "\n")
        parts.append(f"$ {command}\n" + said.strip("\n").rstrip())
    (ROOT / "docs" / "session.txt").write_text("\n\n".join(parts) + "\n")


if __name__ == "__main__":
    main()
