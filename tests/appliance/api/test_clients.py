"""Programs of others against the service, unmodified: LangChain's ChatOpenAI, the README's curl lines, slots and props.

Not here: openai-python (test_tools.py, test_structured.py, test_embeddings.py), anthropic (test_messages.py).
"""

import asyncio
import json
import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import anthropic
import pydantic
import pytest
import pytest_asyncio
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_openai import ChatOpenAI

from tests.appliance.api.service import Service, service
from tests.appliance.api.test_serve import ROOT, Server, serving
from tests.appliance.api.test_tools import CALLS, HERMES
from tests.tiny import tiny_llama


class get_weather(pydantic.BaseModel):
    """Weather of the next days."""

    city: str
    days: int


class Tagged(pydantic.BaseModel):
    sure: bool
    letter: str = pydantic.Field(pattern="^[ab]$")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def calling(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Service]:
    async with service(tmp_path_factory.mktemp("calling"), options={"text": CALLS}, **HERMES) as running:
        yield running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A real engine, as `./up` starts it: whoever reaches the port may ask."""
    folder = tmp_path_factory.mktemp("clients")
    with serving(folder, tiny_llama(folder / "tiny.gguf"), "--alias", "smollm2", "--no-auth") as running:
        yield running


def langchain(base: str, key: str, model: str, **changes: Any) -> ChatOpenAI:
    return ChatOpenAI(base_url=f"{base}/v1", api_key=pydantic.SecretStr(key), model=model, max_retries=0, **changes)


@pytest.mark.asyncio(loop_scope="module")
async def test_langchain_asks_and_streams(shared: Service) -> None:
    model = langchain(shared.base, shared.user, "small", temperature=0)
    turns = [SystemMessage("Be short."), HumanMessage("hi")]
    whole = await model.ainvoke(turns)
    assert whole.content == "hello" and whole.response_metadata["finish_reason"] == "stop"
    assert whole.usage_metadata is not None and whole.usage_metadata["output_tokens"] == len("hello.")
    pieces = [piece async for piece in model.astream(turns, stream_usage=True)]
    joined = pieces[0]
    for piece in pieces[1:]:
        joined = joined + piece
    assert joined.content == "hello" and joined.usage_metadata == whole.usage_metadata
    several = await asyncio.gather(*(model.ainvoke(turns) for _ in range(3)))
    assert {answer.content for answer in several} == {"hello"}


@pytest.mark.asyncio(loop_scope="module")
async def test_langchain_calls_tools_and_sends_their_results_back(calling: Service) -> None:
    model = langchain(calling.base, calling.user, "small").bind_tools([get_weather])
    whole = await model.ainvoke("hi")
    assert isinstance(whole, AIMessage)
    first = whole.tool_calls[0]
    assert (first["name"], first["args"]) == ("get_weather", {"city": "Oslo", "days": 2})
    results = [ToolMessage("rain", tool_call_id=call["id"]) for call in whole.tool_calls]
    again = await model.ainvoke([HumanMessage("hi"), whole, *results])
    assert isinstance(again, AIMessage) and again.tool_calls


def test_langchain_gets_its_own_type_from_a_model_of_noise(server: Server) -> None:
    model = langchain(server.base, "any", "smollm2", seed=3, max_completion_tokens=80)
    made = model.with_structured_output(Tagged).invoke("Which?")
    assert isinstance(made, Tagged) and made.letter in "ab"


@pytest.mark.parametrize("streams", [False, True])
def test_anthropics_output_format_binds_a_model_of_noise(server: Server, streams: bool) -> None:
    schema = {**Tagged.model_json_schema(), "additionalProperties": False}
    given: Any = {
        "model": "smollm2", "max_tokens": 80, "messages": [{"role": "user", "content": "Which?"}],
        "output_config": {"format": {"type": "json_schema", "schema": schema}, "effort": "max"},
    }  # fmt: skip
    asking = anthropic.Anthropic(base_url=server.base, api_key="any", max_retries=0, timeout=120)
    if streams:
        with asking.messages.stream(**given) as stream:
            made = stream.get_final_message()
    else:
        made = asking.messages.create(**given)
    (block,) = made.content
    assert made.stop_reason == "end_turn"
    Tagged.model_validate_json(str(block.to_dict()["text"]))


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl here")
def test_the_curl_lines_of_the_readme_work_as_they_stand(server: Server) -> None:
    """Only the address is this server's; what comes back has the shape that the README shows."""
    text = (ROOT / "README.md").read_text()
    lines = re.findall(r"^(?:\$ )?(curl .*?'\{.*?\}')$", text, re.M | re.S)
    assert len(lines) >= 3, "the README's session shows how to ask"
    for line in dict.fromkeys(lines):
        asked = line.replace("http://127.0.0.1:8080", server.base)
        assert server.base in asked
        told = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, timeout=120, check=True).stdout
        if '"stream": true' in asked:
            data = [block.removeprefix("data: ") for block in told.split("\n\n") if block.startswith("data: ")]
            assert data[-1] == "[DONE]" and json.loads(data[-2])["usage"]["completion_tokens"] <= 3
        elif "max_tokns" in asked:
            assert json.loads(told)["error"]["param"] == "max_tokns"
        else:
            assert json.loads(told)["choices"][0]["message"]["role"] == "assistant"


def test_slots_and_props_tell_what_is_served_and_no_path(server: Server, tmp_path: Path) -> None:
    told = server.get("/props")
    assert told["model_alias"] == "smollm2" and told["total_slots"] == len(server.get("/slots")) == 1
    state = server.get("/slots")[0]
    assert state == {"id": 0, "n_ctx": told["default_generation_settings"]["n_ctx"], "is_processing": False}
    assert {"temperature", "top_k"} <= told["default_generation_settings"]["params"].keys()
    assert "/" not in json.dumps({k: v for k, v in told.items() if k != "chat_template"}).replace("</s>", "")


@pytest.mark.asyncio(loop_scope="module")
async def test_a_busy_slot_tells_its_task_and_no_prompt(tmp_path: Path) -> None:
    async with service(tmp_path, options={"text": "h" * 400 + ".", "step_s": 0.05}) as running:
        asking = asyncio.create_task(running.chat(messages=[{"role": "user", "content": "secret"}]))
        async with asyncio.timeout(60):
            while not (told := (await running.call("GET", "/slots"))[1])[0]["is_processing"]:
                await asyncio.sleep(0.01)
        assert told[0]["task"].startswith("chatcmpl-") and "secret" not in json.dumps(told)
        asking.cancel()
