"""What counts as a sign of life. Not here: what is done to a worker without one (test_supervisor.py)."""

from appliance.vigil import Vigil


def test_a_hung_engine_is_noticed_though_it_tells_of_its_experts() -> None:
    vigil = Vigil(beat_s=60.0, load_s=600.0)
    vigil.saw({"type": "ready"})
    for _ in range(12):
        vigil.saw({"type": "beat", "busy": True, "beat": 7})
        vigil.saw({"type": "experts"})
        assert vigil.age(5.0) is None
    assert "without getting anywhere" in (vigil.age(1.0) or "")
