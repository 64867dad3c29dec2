"""/v1/embeddings as the official client asks it, on a real engine: forms of input and output, and what is refused.

Not here: whether the vectors are right (tests/engine/test_embedding.py).
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import openai
import pytest

from appliance.api.embeddings import cut
from engine.gguf.reader import read_gguf
from engine.load import EngineOptions, load_engine
from engine.text import open_text
from tests.appliance.api.test_serve import Server, serving
from tests.engine.test_embedding import MACHINE, made
from tests.families.encoders import write

TEXTS = ["The bird sings.", "A river, nine hundred things and the morning", "x"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("embeds") / "m.gguf"
    made(path, 3)
    return path


@pytest.fixture(scope="module")
def server(model: Path) -> Iterator[Server]:
    with serving(model.parent, model, "--alias", "embedder", "--ctx-size", "256") as running:
        yield running


@pytest.fixture(scope="module")
def wanted(model: Path) -> tuple[list[list[int]], list[np.ndarray]]:
    """Ids and vectors of TEXTS by an engine of our own."""
    ids = [open_text(read_gguf(model)).encode(text, True, True) for text in TEXTS]
    engine = load_engine(model, EngineOptions(256, 1, 1, spec_type="none"), MACHINE)
    vectors = [engine.embed(some) for some in ids]
    engine.shutdown()
    return ids, [vector for vector in vectors if vector is not None]


def test_the_official_client_gets_the_engines_vectors(
    server: Server, wanted: tuple[list[list[int]], list[np.ndarray]]
) -> None:
    """It asks for base64 where nothing is said."""
    ids, vectors = wanted
    client = server.client()
    one = client.embeddings.create(model="embedder", input=TEXTS[0])
    assert np.array_equal(np.array(one.data[0].embedding, np.float32), vectors[0])
    assert one.usage.prompt_tokens == one.usage.total_tokens == len(ids[0]) and one.model == "embedder"
    several = client.embeddings.create(model="embedder", input=TEXTS)
    as_ids = client.embeddings.create(model="embedder", input=ids)
    plain = client.embeddings.create(model="embedder", input=TEXTS, encoding_format="float")
    for answer in (several, as_ids, plain):
        assert [entry.index for entry in answer.data] == [0, 1, 2]
        for entry, vector in zip(answer.data, vectors, strict=True):
            assert np.array_equal(np.array(entry.embedding, np.float32), vector)
        assert answer.usage.prompt_tokens == sum(map(len, ids))
    alone = client.embeddings.create(model="embedder", input=ids[1], encoding_format="float")
    assert np.array_equal(np.array(alone.data[0].embedding, np.float32), vectors[1])


def test_fewer_dimensions_are_the_first_ones_of_length_one(
    server: Server, wanted: tuple[list[list[int]], list[np.ndarray]]
) -> None:
    got = server.client().embeddings.create(model="embedder", input=TEXTS[1], dimensions=16)
    short = wanted[1][1][:16].astype(np.float64)
    assert np.allclose(got.data[0].embedding, short / np.linalg.norm(short), rtol=1e-6)
    whole = np.array([3, 4], np.float32).tobytes()
    assert cut(whole, None) == cut(whole, 2) == whole
    assert np.frombuffer(cut(whole, 1), np.float32).tolist() == [1.0]


@pytest.mark.parametrize(
    ("change", "param", "words"),
    [
        ({"input": ""}, "input", "no token at all"),
        ({"input": []}, "input", "text, token ids, or an array"),
        ({"input": ["a", 5]}, "input", "text, token ids, or an array"),
        ({"input": [[]]}, "input[0]", "at least 1 item"),
        ({"input": [272]}, "input", "outside the vocabulary of 272"),
        ({"input": ["a"] * 2049}, "input", "more than 2048"),
        ({"input": [5] * 300}, "input", "the context of 256"),
        ({"input": "a", "dimensions": 65}, "dimensions", "vectors have 64 values"),
        ({"input": "a", "dimensions": 0}, "dimensions", "at least 1"),
        ({"input": "a", "encoding_format": "hex"}, "encoding_format", "'float' or 'base64'"),
        ({"input": "a", "pooling": "mean"}, "pooling", "no field 'pooling'"),
    ],
)
def test_what_cannot_be_done_is_told_with_the_field(
    server: Server, change: dict[str, object], param: str, words: str
) -> None:
    with pytest.raises(openai.BadRequestError) as error:
        server.client().post("/embeddings", body={"model": "embedder", **change}, cast_to=object)
    assert words in error.value.message and error.value.param == param


def test_other_models_and_other_people_are_refused(server: Server) -> None:
    with pytest.raises(openai.NotFoundError):
        server.client().embeddings.create(model="somebody", input="a")
    with pytest.raises(openai.AuthenticationError):
        server.client(api_key="nobody").embeddings.create(model="embedder", input="a")


def test_an_encoder_is_served_for_vectors_alone(tmp_path: Path) -> None:
    """Words become ids by WordPiece, with the tokens that begin and end a text; a text may fill the context."""
    write("bert", tmp_path / "m.gguf", 2, changed={"general.name": "encoder"})
    ids = open_text(read_gguf(tmp_path / "m.gguf")).encode("Hello word7!", True, True)
    engine = load_engine(tmp_path / "m.gguf", EngineOptions(256, 1, 1, spec_type="none"), MACHINE)
    wanted = [engine.embed(some) for some in (ids, [5] * 128)]
    engine.shutdown()
    with serving(tmp_path, tmp_path / "m.gguf", "--alias", "encoder") as server:
        client = server.client()
        for text, vector in zip(("Hello word7!", [5] * 128), wanted, strict=True):
            got = client.embeddings.create(model="encoder", input=text)
            assert vector is not None and np.array_equal(np.array(got.data[0].embedding, np.float32), vector)
        for words, ask in (
            ("the model knows 128 positions|the context of", lambda: client.embeddings.create(
                model="encoder", input=[5] * 129)),
            ("which makes vectors and no text", lambda: client.completions.create(model="encoder", prompt="a")),
            ("which makes vectors and no text|template", lambda: client.chat.completions.create(
                model="encoder", messages=[{"role": "user", "content": "a"}])),
        ):  # fmt: skip
            with pytest.raises(openai.BadRequestError, match=words):
                ask()
