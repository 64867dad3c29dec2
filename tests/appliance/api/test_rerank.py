"""/v1/rerank on real engines: the scores of transformers' rows and of llama.cpp, the order, what is refused."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest

from appliance.api.rerank import joined
from engine.errors import UnsupportedTensorType
from engine.load import EngineOptions, load_engine
from engine.tokenizer.vocab import Vocab
from tests.appliance.api.service import Service
from tests.appliance.api.test_serve import Server, serving
from tests.engine.test_embedding import MACHINE
from tests.families.encoders import write
from tests.families.stored import ids_of

QUERY = "word9 bird?"
TEXTS = ["word3 the bird sings.", "a river", "word9 bird? [SEP] word9", "x", "word9 bird?"]
CHILD = """
import json, sys, xllamacpp
path, query, texts = json.loads(sys.stdin.read())
p = xllamacpp.CommonParams()
p.model.path, p.n_ctx, p.cpuparams.n_threads, p.n_parallel, p.verbosity = path, 512, 1, 1, 0
p.cpuparams_batch.n_threads, p.warmup, p.port, p.embedding = 1, False, 0, True
p.n_batch = p.n_ubatch = 512
p.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_RANK
p.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
server = xllamacpp.Server(p)
print("answer", json.dumps(server.handle_rerank({"query": query, "documents": texts, "model": "m"})), flush=True)
"""


def head(labels: int = 1) -> dict[str, Any]:
    """A head of 64 values, drawn."""
    draw = np.random.default_rng(5)
    sizes = {"cls.weight": (64, 64), "cls.bias": (64,), "cls.output.weight": (labels, 64), "cls.output.bias": (labels,)}
    return {name: draw.standard_normal(size).astype(np.float32) / 4 for name, size in sizes.items()}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ranks") / "m.gguf"
    ends = {"tokenizer.ggml.add_eos_token": True, "tokenizer.ggml.add_sep_token": False}  # llama.cpp wants to be told
    write("bert", path, 4, more=head(), changed=ends)
    return path


@pytest.fixture(scope="module")
def server(model: Path) -> Iterator[Server]:
    with serving(model.parent, model, "--alias", "ranker", "--ctx-size", "128") as running:
        yield running


def ask(server: Server, **more: Any) -> Any:
    given = {"model": "ranker", "query": QUERY, "documents": TEXTS, **more}
    return server.client().post("/rerank", body=given, cast_to=object)


@pytest.mark.parametrize(("quant", "labels", "most"), [("F32", 1, 1e-4), ("Q8_0", 1, 0.05), ("F32", 3, 1e-4)])
def test_a_score_is_the_head_s_of_transformers_first_row(quant: str, labels: int, most: float, tmp_path: Path) -> None:
    tensors = head(labels)
    rows = write("bert", tmp_path / "m.gguf", 4, quant, more=tensors).astype(np.float64)
    hidden = np.tanh(tensors["cls.weight"].astype(np.float64) @ rows[0] + tensors["cls.bias"])
    wanted = tensors["cls.output.weight"].astype(np.float64) @ hidden + tensors["cls.output.bias"]
    options = EngineOptions(256, 2, 2, type_k="f32", type_v="f32", spec_type="none")
    engine = load_engine(tmp_path / "m.gguf", options, MACHINE)
    found = engine.embed(ids_of())
    engine.shutdown()
    assert engine.info.pooling == "rank" and found is not None and found.shape == (labels,)
    assert np.abs(found - wanted).max() <= most, (found, wanted)


def test_documents_come_in_the_order_of_llama_cpp_with_its_scores(server: Server, model: Path) -> None:
    plain = [text for text in TEXTS if "[SEP]" not in text]  # there it is a separator, here a text
    child = subprocess.run(
        [sys.executable, "-c", CHILD], input=json.dumps([str(model), QUERY, plain]), capture_output=True, text=True,
        timeout=120, check=True,
    )  # fmt: skip
    lines = [line for line in child.stdout.splitlines() if line.startswith("answer ")]
    theirs = {one["index"]: one["relevance_score"] for one in json.loads(lines[0].removeprefix("answer "))["results"]}
    told = ask(server, documents=plain)
    ours = {one["index"]: one["score"] for one in told["results"]}
    assert len(theirs) == len(ours) == len(plain)
    assert max(abs(ours[i] - theirs[i]) for i in ours) <= 3e-3, (ours, theirs)
    assert list(ours) == sorted(theirs, key=lambda i: -theirs[i])
    for one in told["results"]:
        assert one["relevance_score"] == pytest.approx(1 / (1 + np.exp(-one["score"])), rel=1e-6)


def test_the_best_are_told_with_their_texts(server: Server) -> None:
    whole = ask(server)
    assert sorted(one["index"] for one in whole["results"]) == list(range(len(TEXTS)))
    assert "document" not in whole["results"][0] and whole["model"] == "ranker"
    assert whole["usage"]["prompt_tokens"] == whole["usage"]["total_tokens"] > len(TEXTS)
    objects = [{"text": text, "id": 7} for text in TEXTS]
    best = ask(server, documents=objects, top_n=2, return_documents=True)
    assert [(one["index"], one["score"]) for one in best["results"]] == [
        (one["index"], one["score"]) for one in whole["results"][:2]
    ]
    assert [one["document"]["text"] for one in best["results"]] == [TEXTS[one["index"]] for one in best["results"]]
    alone = ask(server, documents=[TEXTS[2]])
    assert alone["results"][0]["score"] == next(one["score"] for one in whole["results"] if one["index"] == 2)


@pytest.mark.parametrize(
    ("change", "param", "words"),
    [
        ({"documents": []}, "documents", "at least 1"),
        ({"query": ""}, "query", "at least 1"),
        ({"documents": [5]}, "documents[0]", "string or object expected"),
        ({"documents": ["a"] * 1001}, "documents", "at most 1000"),
        ({"top_n": 0}, "top_n", "at least 1"),
        ({"documents": ["word3 " * 200]}, None, "tokens"),
        ({"model": "other"}, "model", "ranker"),
        ({"docs": []}, "docs", "did you mean"),
    ],
)
def test_what_cannot_be_ranked_is_named(server: Server, change: dict[str, Any], param: str | None, words: str) -> None:
    with pytest.raises(openai.APIStatusError) as refused:
        ask(server, **change)
    assert refused.value.status_code in (400, 404) and refused.value.param == param
    assert words in refused.value.message, refused.value.message


def test_a_ranker_makes_no_vectors(server: Server) -> None:
    with pytest.raises(openai.BadRequestError, match="send its texts to /v1/rerank"):
        server.client().embeddings.create(model="ranker", input="a")


@pytest.mark.asyncio(loop_scope="module")
async def test_a_model_without_a_head_says_so(shared: Service) -> None:
    status, body, _ = await shared.call("POST", "/v1/rerank", {"query": "a", "documents": ["b"]})
    assert (status, body["error"]["param"]) == (400, "model") and "does not rank" in body["error"]["message"]


@pytest.mark.parametrize(("model", "pair"), [("t5", "<s> q </s> </s> d </s>"), ("bert", "<s> q </s> d </s>")])
def test_a_pair_is_joined_as_its_tokenizer_was_trained(model: str, pair: str) -> None:
    """XLM-RoBERTa's template of a pair is `<s> $A </s> </s> $B </s>`, BERT's is `[CLS] $A [SEP] $B [SEP]`."""
    names = ["<pad>", "<s>", "</s>", "<unk>", "q", "d"]
    keys: dict[str, Any] = {
        "model": model, "tokens": names, "token_type": [3, 3, 3, 2, 1, 1], "scores": [0.0] * 6, "bos_token_id": 1,
        "eos_token_id": 2, "unknown_token_id": 3, "seperator_token_id": 2, "cls_token_id": 1, "add_bos_token": True,
        "add_eos_token": True, "add_sep_token": True,
    }  # fmt: skip
    vocab = Vocab({f"tokenizer.ggml.{key}": value for key, value in keys.items()})
    assert " ".join(names[i] for i in joined(vocab, [1, 4, 2], [1, 5, 2])) == pair


def test_a_head_of_another_type_is_refused_at_the_start(tmp_path: Path) -> None:
    write("bert", tmp_path / "m.gguf", 4, "Q4_0", more=head())
    with pytest.raises(UnsupportedTensorType, match=r"cls\.output\.weight is Q4_0"):
        load_engine(tmp_path / "m.gguf", EngineOptions(256, 1, 1, spec_type="none"), MACHINE)
