"""Costs: what they add up to, and their file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.codecs.registry import REGISTRY, parse
from taut.config import costs_file
from taut.errors import Misuse, StorageFailed
from taut.simulator.models.cost_file import DEFAULTS, Known, cost_from, known_costs, origin
from taut.simulator.models.costs import CodecCost, Costs, measured
from taut.worker.codec_costs.measuring import MeasuredCodec


def test_every_codec_has_a_cost() -> None:
    assert set(measured()) == set(REGISTRY)


def test_dense_is_four_bytes_an_element() -> None:
    assert Costs().codec("dense").nbytes(1_000_003) == 4_000_012


def test_times_are_linear() -> None:
    cost = CodecCost(2e-9, 3e-9, 8.0, 1e-5)
    assert cost.encode_s(1000) == pytest.approx(1e-5 + 2e-6)
    assert cost.absorb_s(1000) == pytest.approx(3e-6)


@pytest.mark.parametrize("name", REGISTRY)
def test_the_measured_bits_are_near_those_that_are_stated(name: str) -> None:
    stated, found = parse(name).facts.bits, measured()[name].bits_per_element
    if name == "powersgd":  # its bits follow from the tensors' shapes
        assert stated / 3 < found < 3 * stated
    else:
        assert found == pytest.approx(stated, rel=0.2)


def test_settings_decide_the_bits() -> None:
    costs = Costs()
    assert costs.codec("tether:slack=2^-6") == costs.codec("tether")
    assert costs.codec("topk:feedback=no") == costs.codec("topk")
    for spec in ("threshold:density=2^-10", "tether:density=0.5", "topk:density=0.001"):
        assert costs.codec(spec).bits_per_element == pytest.approx(parse(spec).facts.bits, rel=0.01)
        assert costs.codec(spec).encode_s_per_element == costs.codec(spec.partition(":")[0]).encode_s_per_element


def test_settings_change_what_was_measured_as_they_change_what_is_stated() -> None:
    costs = Costs({"powersgd": CodecCost(1e-9, 1e-9, 0.4)})
    assert costs.codec("powersgd:rank=8").bits_per_element > costs.codec("powersgd:rank=4").bits_per_element > 0.4
    steered = Costs({"tether": CodecCost(1e-9, 1e-9, 0.7)})
    assert steered.codec("tether:density=0.001").bits_per_element == parse("tether:density=0.001").facts.bits


def test_settings_that_cannot_be_are_refused() -> None:
    with pytest.raises(Misuse, match="density"):
        Costs().codec("topk:density=2")


def test_a_codec_that_was_not_measured_here_costs_what_it_does_by_default() -> None:
    assert Costs({"dense": CodecCost(1e-9, 2e-9, 32.0)}).codec("int8") == measured()["int8"]


def test_an_unknown_codec_is_refused() -> None:
    with pytest.raises(Misuse, match="did you mean 'tether'"):
        Costs().codec("tethr")


def test_a_file_is_read_back_as_it_was(tmp_path: Path) -> None:
    costs = Costs({"dense": CodecCost(1e-9, 2e-9, 32.0)}, message_s=3e-5)
    costs.write(tmp_path / "costs.json")
    assert Costs.read(tmp_path / "costs.json")[0] == costs
    assert [each.name for each in tmp_path.iterdir()] == ["costs.json"]


def test_a_partial_file_has_the_rest_as_measured(tmp_path: Path) -> None:
    (tmp_path / "costs.json").write_text('{"message_s": 1e-6}')
    assert Costs.read(tmp_path / "costs.json")[0] == Costs(message_s=1e-6)


# ---------------------------------------------------------------------------------------------- the user's file


def test_the_users_file_says_where_it_is_from(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "costs.json"
    assert known_costs(path) == Known(Costs(), DEFAULTS)
    mine = CodecCost(1e-9, 2e-9, 32.0)
    Costs({"dense": mine}).write(path, origin())
    found = known_costs(path)
    assert origin()["at"][:10] in found.source and str(path) in found.source
    assert found.costs.codec("dense") == mine and found.costs.codec("topk") == measured()["topk"]


def test_a_broken_users_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "costs.json").write_text('{"measured": 3}')
    with pytest.raises(Misuse, match="measured"):
        known_costs(tmp_path / "costs.json")


def test_where_the_users_file_is() -> None:
    assert costs_file({"TAUT_COSTS": "/a/b.json", "XDG_CACHE_HOME": "/c"}) == Path("/a/b.json")
    assert costs_file({"XDG_CACHE_HOME": "/c", "HOME": "/h"}) == Path("/c/taut/costs.json")
    assert costs_file({"HOME": "/h"}) == Path("/h/.cache/taut/costs.json")


def made_up(spec: str, elements: int, nbytes: float, encode_s: float, decode_s: float) -> MeasuredCodec:
    return MeasuredCodec(spec, elements, 3, nbytes, encode_s, decode_s, 0.5)


@given(fixed_s=st.floats(0.0, 1e-3), rate=st.floats(0.0, 1e-7), absorb=st.floats(0.0, 1e-6), bits=st.floats(0.01, 40.0))
def test_the_fit_finds_what_made_the_figures(fixed_s: float, rate: float, absorb: float, bits: float) -> None:
    """A codec that costs exactly what the model says is fitted exactly."""

    def one(elements: int) -> MeasuredCodec:
        nbytes = 28 + elements * bits / 8
        return made_up("int8", elements, nbytes, fixed_s + rate * elements, absorb * nbytes)

    cost = cost_from(one(1 << 10), one(1 << 22))
    assert cost.encode_s(3_000_000) == pytest.approx(fixed_s + rate * 3_000_000, rel=1e-6, abs=1e-12)
    assert cost.absorb_s_per_byte == pytest.approx(absorb, rel=1e-6, abs=1e-15)
    assert cost.bits_per_element == pytest.approx(bits, rel=1e-6)


def test_codecs_that_steer_themselves_cost_the_bits_that_they_aim_at() -> None:
    cost = cost_from(made_up("tether", 1000, 30, 1e-6, 1e-6), made_up("tether", 2000, 1000, 2e-6, 2e-6))
    assert cost.bits_per_element == parse("tether").facts.bits


def test_a_failed_write_leaves_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "costs.json").mkdir()
    with pytest.raises(StorageFailed):
        Costs().write(tmp_path / "costs.json")
    assert [each.name for each in tmp_path.iterdir()] == ["costs.json"]


@pytest.mark.parametrize(
    "record",
    [
        [],
        {"mesage_s": 1e-6},
        {"message_s": "slow"},
        {"message_s": -1.0},
        {"codecs": 3},
        {"codecs": {"dense": {"bits_per_element": 32}}},
        {"codecs": {"dense": {"bits": 32}}},
        {"copy_s_per_byte": True},
    ],
)
def test_a_malformed_file_is_refused(tmp_path: Path, record: object) -> None:
    path = tmp_path / "costs.json"
    path.write_text(json.dumps(record))
    with pytest.raises(Misuse):
        Costs.read(path)


@pytest.mark.parametrize("text", [b"", b"{", b"\xff", b"nonsense"])
def test_what_is_no_json_is_refused(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "costs.json"
    path.write_bytes(text)
    with pytest.raises(Misuse, match="JSON"):
        Costs.read(path)


def test_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="No such file"):
        Costs.read(tmp_path / "none.json")
