"""Costs: what they add up to, and their file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from taut.codecs.registry import REGISTRY
from taut.errors import Misuse, StorageFailed
from taut.simulator.costs import MEASURED, CodecCost, Costs


def test_every_codec_has_a_cost() -> None:
    assert set(MEASURED) == set(REGISTRY)


def test_dense_is_four_bytes_an_element() -> None:
    assert Costs().codec("dense").nbytes(1_000_003) == 4_000_012


def test_times_are_linear() -> None:
    cost = CodecCost(2e-9, 3e-9, 8.0, 1e-5)
    assert cost.encode_s(1000) == pytest.approx(1e-5 + 2e-6)
    assert cost.absorb_s(1000) == pytest.approx(3e-6)


def test_a_density_decides_the_bits() -> None:
    costs = Costs()
    assert costs.codec("tether:slack=2^-6") == costs.codec("tether")
    assert costs.codec("threshold:density=2^-10").bits_per_element == 32 / 1024
    assert costs.codec("tether:density=0.5").bits_per_element == 2.0  # a bitmap by then


def test_an_unknown_codec_is_refused() -> None:
    with pytest.raises(Misuse, match="did you mean 'tether'"):
        Costs().codec("tethr")


def test_a_file_is_read_back_as_it_was(tmp_path: Path) -> None:
    costs = Costs({"dense": CodecCost(1e-9, 2e-9, 32.0)}, message_s=3e-5)
    costs.write(tmp_path / "costs.json")
    assert Costs.read(tmp_path / "costs.json") == costs
    assert [each.name for each in tmp_path.iterdir()] == ["costs.json"]


def test_a_partial_file_has_the_rest_as_measured(tmp_path: Path) -> None:
    (tmp_path / "costs.json").write_text('{"message_s": 1e-6}')
    assert Costs.read(tmp_path / "costs.json") == Costs(message_s=1e-6)


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
