"""When the cache of experts gives way and when it comes back, on a real engine with a clock and pressure by hand."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.easing import AGAIN_S, CALM_S, LEAST, STALLED, Easing
from appliance.machine.pressure import NOTHING_TOLD, Pressure
from engine.budget import Machine
from engine.generate import Engine
from engine.load import EngineOptions, load_engine
from tests.tiny import tiny_llama
from tests.tiny_moe import tiny_qwen3moe

MACHINE = Machine(1 << 34, None, 2, (0, 1), None)
SHORT = Pressure(memory_some=STALLED)


def load(path: Path) -> Engine:
    options = EngineOptions(512, ubatch_size=8, load_mode="stream", spec_type="none", expert_bytes=1 << 30)
    return load_engine(path, options, MACHINE)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    loaded = load(tiny_qwen3moe(tmp_path / "m.gguf", n_layers=8))
    yield loaded
    loaded.shutdown()


class World:
    """The hands that move the clock and the pressure."""

    def __init__(self, engine: Engine) -> None:
        self.now, self.pressure = 1000.0, NOTHING_TOLD
        self.easing = Easing(engine.resize_experts, lambda: self.pressure, lambda: self.now)

    def after(self, seconds: float, pressure: Pressure) -> float:
        self.now, self.pressure = self.now + seconds, pressure
        self.easing.look()
        return self.easing.share


def test_it_shrinks_while_memory_is_short_and_grows_when_it_has_not_been_for_a_while(engine: Engine) -> None:
    world, whole = World(engine), engine.resize_experts(1.0)
    assert whole is not None
    assert world.after(AGAIN_S - 1, SHORT) == 1.0, "that was the load"
    assert world.after(1, Pressure(memory_some=STALLED - 0.1, max=10_000)) == 1.0, "a full group lacks nothing"
    assert world.after(1, SHORT) == 0.75 and engine.resize_experts(0.75) < 0.76 * whole
    assert world.after(1, SHORT) == 0.75, "the kernel's figure is still that of before"
    assert world.after(AGAIN_S, SHORT) == 0.75**2
    assert world.after(CALM_S - 1, NOTHING_TOLD) == 0.75**2
    assert world.after(1, NOTHING_TOLD) == 0.75**2 * 1.1
    for _ in range(9):
        world.after(CALM_S, NOTHING_TOLD)
    assert world.easing.share == 1.0


def test_there_is_an_end_to_it(engine: Engine) -> None:
    world = World(engine)
    for _ in range(20):
        world.after(AGAIN_S, SHORT)
    assert world.easing.share == LEAST


def test_an_engine_without_experts_has_nothing_to_give(tmp_path: Path) -> None:
    engine = load(tiny_llama(tmp_path / "m.gguf"))
    world = World(engine)
    world.now, world.pressure = world.now + AGAIN_S, SHORT
    assert not world.easing.look() and engine.resize_experts(0.5) is None
    engine.shutdown()
