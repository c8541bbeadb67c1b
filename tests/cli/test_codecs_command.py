"""``taut codecs`` as a user types it: the list, one codec, own updates, and the costs that are kept."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from safetensors.numpy import save_file

from taut.cli.main import main
from taut.cli.output.codec_tables import Listed, measured_table, stated_table
from taut.codecs import REGISTRY, parse
from taut.simulator.models.costs import Costs, measured
from taut.worker.codec_costs.measuring import MeasuredCodec

JOB = str(Path(__file__).parents[1] / "simulator" / "tiny_job.py")
LAYER = {"layer.weight": np.linspace(-1, 1, 256, dtype=np.float32).reshape(16, 16)}


def taut(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["codecs", *words])
    return int(ended.value.code or 0)


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert taut("--json", *words) == 0
    return json.loads(capsys.readouterr().out)


def test_all_are_listed_with_what_they_state(capsys: pytest.CaptureFixture[str]) -> None:
    found = printed(capsys, "--no-measure")
    assert [one["name"] for one in found["codecs"]] == list(REGISTRY)
    assert found["measured_on"] is None and all(one["measured"] is None for one in found["codecs"])
    for one in found["codecs"]:
        facts = parse(one["spec"]).facts
        assert (one["bits"], one["error"], one["paper"]) == (facts.bits, facts.error, facts.paper)


def test_the_tables_fit_into_80_columns() -> None:
    console = Console(width=80, record=True, file=open("/dev/null", "w"), highlight=False)  # noqa: SIM115
    rows = [Listed(name, MeasuredCodec(name, 1000, 3, 4000.0, 9.99, 9.99, 0.0003), 8e11) for name in REGISTRY]
    console.print(stated_table(rows, wide=False))
    console.print(measured_table(rows))
    console.file.close()
    lines = console.export_text().splitlines()
    assert max(len(line.rstrip()) for line in lines) <= 80
    first_words = {line.split(" ")[0] for line in lines}
    assert set(REGISTRY) <= first_words, "a name was cut"
    assert not any("…" in line for line in lines)


def test_measured_figures_are_within_what_is_stated(capsys: pytest.CaptureFixture[str]) -> None:
    found = printed(capsys, "--only", "dense,int8,topk:density=0.1,feedback=no,bf16", "--size", "20k")
    assert "made-up" in found["measured_on"] and found["machine"]["versions"]["numpy"]
    assert [one["spec"] for one in found["codecs"]] == ["dense", "int8", "topk:density=0.1,feedback=no", "bf16"]
    for one in found["codecs"]:
        measured = one["measured"]
        assert measured["elements"] == 20_000
        assert measured["bits"] == pytest.approx(one["bits"], rel=0.02)
        assert measured["error"] <= one["error"] + 1e-12
        assert measured["encode_ns_per_element"] > 0.0 and measured["decode_ns_per_element"] > 0.0


def test_settings_are_measured_as_they_are_written(capsys: pytest.CaptureFixture[str]) -> None:
    sparse, denser = printed(capsys, "topk:density=0.01", "topk:density=0.1", "--size", "10k")["codecs"]
    assert denser["measured"]["bits"] == pytest.approx(10 * sparse["measured"]["bits"], rel=0.1)
    assert denser["measured"]["error"] < sparse["measured"]["error"]


def test_one_codec_is_told_with_how_it_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    assert taut("topk:density=0.001", "--no-measure") == 0
    told = capsys.readouterr().out
    for words in (
        "--codec topk:density=0.001",
        'codec = { name = "topk", density = 0.001 }',
        "taut.codecs.TopK(density=0.001)",
        "density=0.001, feedback=yes",
        "(1 - density) |v|^2",
        "Aji and Heafield 2017",
    ):
        assert words in told, words


@pytest.mark.parametrize("name", REGISTRY)
def test_every_codec_can_be_told(name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "140")  # where there is room, it is one line to copy
    assert taut(name, "--no-measure") == 0
    told = capsys.readouterr().out
    made = next(line.split(maxsplit=2)[2] for line in told.splitlines() if line.startswith("in Python"))
    import taut as package

    assert parse(eval(made, {"taut": package})) == parse(name)


# ---------------------------------------------------------------------------------------------- own updates


def test_on_a_scripts_own_updates(capsys: pytest.CaptureFixture[str]) -> None:
    """What follows the script is the script's, and it is stopped long before its data ends."""
    found = printed(capsys, "--only", "int8,topk", "--steps", "6", JOB, "--epochs", "99", "--samples", "512")
    assert found["measured_on"] == f"6 updates of {JOB} as one worker, 115 elements"
    assert [one["measured"]["updates"] for one in found["codecs"]] == [3, 3]
    assert all(0.0 < one["measured"]["error"] < 1.0 for one in found["codecs"])


def test_script_as_a_flag_is_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    found = printed(capsys, "--only", "int8", "--steps", "4", "--script", JOB, "--epochs", "1")
    assert "4 updates of" in found["measured_on"]


def test_a_script_that_fails_or_ends_too_soon_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "broken.py").write_text("raise ValueError('as asked for')")
    assert taut("--only", "int8", str(tmp_path / "broken.py")) == 1
    told = capsys.readouterr().err
    assert "broken.py failed: ValueError: as asked for" in told
    assert told.count("File ") == 1 and 'broken.py", line 1' in told  # no line of taut's
    assert taut("--only", "int8", JOB, "--samples", "32", "--epochs", "1") == 1
    assert "too few" in capsys.readouterr().err


def saved(path: Path, **tensors: Any) -> str:
    save_file({name.replace("__", "."): value for name, value in tensors.items()}, path)
    return str(path)


def test_gradients_and_moments_are_preferred_to_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weight = LAYER["layer.weight"]
    lone = saved(tmp_path / "lone.safetensors", layer__weight=weight)
    adam = saved(tmp_path / "adam.safetensors", layer__weight=weight, state__exp_avg=weight, state__exp_avg_sq=weight**2)
    both = saved(tmp_path / "both.safetensors", state__exp_avg=weight, layer__weight__grad=weight[:4])
    words = ("--only", "int8", "--checkpoint")
    assert "the weights in" in printed(capsys, *words, lone)["measured_on"]
    assert "the first moments in" in (found := printed(capsys, *words, adam))["measured_on"]
    assert found["codecs"][0]["measured"]["elements"] == 256, "the squares are no update"
    assert "the gradients in" in (found := printed(capsys, *words, both))["measured_on"]
    assert found["codecs"][0]["measured"]["elements"] == 64
    assert "the weights in" in printed(capsys, "--only", "int8", lone)["measured_on"], "a bare file is a checkpoint, too"


def test_of_two_checkpoints_the_difference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = saved(tmp_path / "0.safetensors", **{"w": LAYER["layer.weight"], "steps": np.arange(3)})
    after = saved(tmp_path / "1.safetensors", **{"w": LAYER["layer.weight"] * 1.5, "steps": np.arange(3)})
    found = printed(capsys, "--only", "topk:density=0.5", "--size", "128", "--checkpoint", before, "--checkpoint", after)
    assert "what changed from" in found["measured_on"] and "128 of 256 elements" in found["measured_on"]
    assert taut("--checkpoint", before, "--checkpoint", before) == 2
    assert "all zero" in capsys.readouterr().err
    other = saved(tmp_path / "2.safetensors", v=LAYER["layer.weight"])
    assert taut("--checkpoint", before, "--checkpoint", other) == 2
    assert "tensor 'v'" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_what_is_not_finite_is_named(wrong: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = LAYER["layer.weight"].copy()
    broken[3, 3] = wrong
    path = saved(tmp_path / "m.safetensors", good=LAYER["layer.weight"], layer__bad=broken)
    assert taut("--checkpoint", path) == 2
    told = capsys.readouterr().err
    assert "'layer.bad'" in told and "1 of 256" in told and "good" not in told


@pytest.mark.parametrize(
    ("content", "told"), [(None, "exists"), (b"", "safetensors file"), (b"\x80\x02junk", "safetensors")]
)
def test_a_bad_checkpoint_is_told(
    content: bytes | None, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "model.pt"
    if content is not None:
        path.write_bytes(content)
    assert taut("--checkpoint", str(path)) == 2
    assert told in capsys.readouterr().err


def test_a_checkpoint_without_numbers_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert taut("--checkpoint", saved(tmp_path / "m.safetensors", steps=np.arange(5))) == 2
    assert "floating-point" in capsys.readouterr().err


# -------------------------------------------------------------------------------------------- costs that are kept


@pytest.fixture
def costs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "cache" / "costs.json"
    monkeypatch.setenv("TAUT_COSTS", str(path))
    return path


def test_costs_are_kept_and_read_by_simulations(costs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert taut("--measure", "--only", "int8", "--size", "8k") == 0
    assert str(costs) in capsys.readouterr().out
    record = json.loads(costs.read_text())
    assert set(record["codecs"]) == {"int8", "dense"} and record["measured"]["cpu"] and record["measured"]["at"]
    assert record["codecs"]["int8"]["bits_per_element"] == pytest.approx(8.125, rel=0.01)
    assert taut("--measure", "--only", "topk", "--size", "8k", "--quiet") == 0
    assert set(json.loads(costs.read_text())["codecs"]) == {"int8", "dense", "topk"}, "others are kept"
    capsys.readouterr()
    simulated = ("--timing-only", "--steps", "2", "--workers", "2", "--codec", "int8", "resnet50")
    with pytest.raises(SystemExit):
        main(["simulate", "--json", *simulated])
    found = json.loads(capsys.readouterr().out)
    assert str(costs) in found["costs_from"] and record["measured"]["at"][:10] in found["costs_from"]
    assert found["scenario"]["costs"]["codecs"]["int8"] == record["codecs"]["int8"]
    assert found["scenario"]["costs"]["codecs"]["powersgd"] == asdict(Costs())["codecs"]["powersgd"]


def test_without_a_file_simulations_say_that_costs_are_tauts_own(costs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["simulate", "--timing-only", "--steps", "2", "--workers", "2", "resnet50"])
    assert "taut's own" in capsys.readouterr().out
    costs.parent.mkdir()
    costs.write_text("{ broken")
    with pytest.raises(SystemExit) as ended:
        main(["simulate", "--timing-only", "--steps", "2", "--workers", "2", "resnet50"])
    assert ended.value.code == 2 and str(costs) in capsys.readouterr().err


def test_a_broken_file_is_measured_anew(costs: Path) -> None:
    costs.parent.mkdir()
    costs.write_text("{ broken")
    assert taut("--measure", "--only", "dense", "--size", "8k", "--quiet") == 0
    assert Costs.read(costs)[0].codec("topk") == measured()["topk"]


# ------------------------------------------------------------------------------------------------------- misuse


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["topc"], "did you mean 'topk'"),
        (["topk:density=0"], "density=0"),
        (["topk:densty=0.1"], "did you mean 'density'"),
        (["--only", ""], "--only"),
        (["--only", "int8,topk:density=2"], "density=2"),
        (["--size", "25X"], "--size 25X"),
        (["--size", "1"], "--size 1"),
        (["--steps", "1", JOB], "--steps 1"),
        (["nowhere.py"], "a file that exists"),
        (["--checkpoint", "nowhere.safetensors"], "a file that exists"),
        (["--measure", "--no-measure"], "one of them"),
        (["--measure", JOB], "taut probe"),
        (["--measure", "--only", "topk:density=0.1"], "without settings"),
        (["--no-measure", JOB], "one of them"),
        (["--checkpoint", "a", "--checkpoint", "b", "--checkpoint", "c"], "3 checkpoints"),
    ],
)
def test_mistakes_are_told(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert taut(*words) == 2
    text = capsys.readouterr().err
    assert text.startswith("error: ") and told in text and "Traceback" not in text
