"""What transformers makes of real chat templates and tests/chats.py's conversations, for the tests to compare with.

    python -m benchmarks.transformers_chats        writes tests/vectors/chats.json.xz

Needs transformers, which nothing else here does: the tests read what this has written. Messages are given as its own
documentation says, not as an API's client sends them: arguments as an object, a tool's answer with the tool's name.
"""

import copy
import datetime
import hashlib
import json
import lzma
from pathlib import Path
from typing import Any

from tests.chats import BOS, CHATS, EOS, NOW, Chat
from tests.llama_cpp_sources import models

VECTORS = Path(__file__).parent.parent / "tests" / "vectors" / "chats.json.xz"


def tokenizer() -> Any:
    """One that knows no words: only its begin and end tokens reach a template."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(WordLevel({BOS: 0, EOS: 1}, unk_token=BOS))
    return PreTrainedTokenizerFast(tokenizer_object=words, bos_token=BOS, eos_token=EOS)


def documented(chat: Chat, source: str, as_text: bool = False, as_null: bool = False) -> list[dict[str, Any]]:
    """The messages as transformers' users write them for this template."""
    messages = copy.deepcopy(chat.messages)
    names = {call["id"]: call["function"]["name"] for m in messages for call in m.get("tool_calls", ())}
    for message in messages:
        if not as_text:
            for call in message.get("tool_calls", ()):
                call["function"]["arguments"] = json.loads(call["function"]["arguments"])
        if as_null and message.get("tool_calls"):
            message["content"] = None
        if message["role"] == "tool":
            message["name"] = names[message["tool_call_id"]]
        if "reasoning_content" in message and "reasoning_content" not in source:
            # Three names are in use for one thing.
            message["thinking"] = message["reasoning"] = message["reasoning_content"]
    return messages


def shown(made_by: Any, source: str, chat: Chat, messages: list[dict[str, Any]]) -> dict[str, str]:
    """`{"text"}`, or `{"error"}` with the template's own words."""
    try:
        text = made_by.apply_chat_template(
            messages, tools=chat.tools, chat_template=source, tokenize=False,
            add_generation_prompt=chat.add_generation_prompt, **chat.extra,
        )  # fmt: skip
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {"text": text}


def takes_system(made_by: Any, source: str) -> bool:
    """Whether the template shows a system message at all; some want tools beside it."""
    chats = CHATS["with a system message"], CHATS["tools are offered"]
    texts = [shown(made_by, source, chat, documented(chat, source)).get("text", "") for chat in chats]
    return any(chats[0].messages[0]["content"] in text for text in texts)


def shows_call(found: dict[str, str]) -> bool:
    """Whether the call's city is there (the question writes it otherwise), and not as Python writes it."""
    return "rich <5>" in found.get("text", "") and "{'city': 'Z" not in found["text"]


def reference(made_by: Any, source: str, chat: Chat) -> dict[str, Any]:
    """What transformers shows, and in `how` what had to be given otherwise than documented for it to be right."""
    found, how = shown(made_by, source, chat, documented(chat, source)), ""
    if any("tool_calls" in m for m in chat.messages):
        for more in ({"as_text": True}, {"as_null": True}, {"as_text": True, "as_null": True}):
            again = shown(made_by, source, chat, documented(chat, source, **more))
            if not shows_call(found) and shows_call(again):
                found, how = again, " and ".join(more)
    system = chat.messages[0]
    if system["role"] == "system" and not takes_system(made_by, source):
        first = {**chat.messages[1], "content": system["content"] + "\n\n" + chat.messages[1]["content"]}
        folded = chat._replace(messages=[first, *chat.messages[2:]])
        text = shown(made_by, source, chat, documented(folded, source))
        if system["content"] in text.get("text", ""):
            found, how = text, "system folded"
    return {**found, **({"how": how} if how else {})}


def main() -> None:
    import transformers
    from transformers.utils import chat_template_utils

    class Fixed(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> "Fixed":
            return cls(NOW.year, NOW.month, NOW.day, NOW.hour, NOW.minute, NOW.second)

    chat_template_utils.datetime = Fixed
    made_by = tokenizer()
    files = sorted((models() / "templates").glob("*.jinja"))
    templates = {}
    for path in files:
        source = path.read_text()
        shows = {name: reference(made_by, source, chat) for name, chat in CHATS.items()}
        templates[path.stem] = {"sha256": hashlib.sha256(source.encode()).hexdigest(), "shows": shows}
    provenance = {
        "by": "python -m benchmarks.transformers_chats", "on": str(datetime.date.today()),
        "transformers": transformers.__version__, "templates": "llama.cpp's models/templates",
    }  # fmt: skip
    whole = json.dumps({"provenance": provenance, "templates": templates}, ensure_ascii=False, indent=0)
    VECTORS.write_bytes(lzma.compress(whole.encode(), preset=9))
    print(f"{VECTORS.name}: {len(templates)} templates, {VECTORS.stat().st_size} bytes")


if __name__ == "__main__":
    main()
