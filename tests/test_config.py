"""Settings: who wins, where a value came from, and what a mistake is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.config import (
    Settings,
    WorkerEnvironment,
    cores,
    resolve,
    worker_environment,
)
from taut.errors import Misuse
from taut.specs import did_you_mean
from taut.strategies import REGISTRY

NOWHERE = Path("/nowhere")


def in_file(folder: Path, text: str) -> Path:
    (folder / "taut.toml").write_text(text)
    return folder


def test_defaults_need_nothing() -> None:
    settings = resolve({}, environ={}, cwd=NOWHERE)
    assert settings == Settings()
    assert set(settings.sources.values()) == {"default"}


@given(
    given_in=st.sets(st.sampled_from(["flag", "environment", "file"])),
    numbers=st.tuples(*[st.integers(1, 100)] * 3),
)
def test_the_nearest_source_wins(
    tmp_path_factory: pytest.TempPathFactory, given_in: set[str], numbers: tuple[int, int, int]
) -> None:
    flag, variable, written = numbers
    folder = tmp_path_factory.mktemp("settings")
    if "file" in given_in:
        in_file(folder, f"[run]\nworkers = {written}\n")
    settings = resolve(
        {"workers": flag if "flag" in given_in else None},
        environ={"TAUT_WORKERS": str(variable)} if "environment" in given_in else {},
        cwd=folder,
    )
    expected = next(
        (value, source)
        for value, source, where in (
            (flag, "flag", "flag"),
            (variable, "TAUT_WORKERS", "environment"),
            (written, "taut.toml", "file"),
            (1, "default", None),
        )
        if where is None or where in given_in
    )
    assert (settings.workers, settings.sources["workers"]) == expected


def test_every_table_of_the_file_is_read(tmp_path: Path) -> None:
    in_file(
        tmp_path,
        '[run]\nstrategy = "independent"\npreload = ["json", "csv"]\n[network]\nport = 7000\n[output]\nname = "a-1"\n',
    )
    settings = resolve({}, environ={}, cwd=tmp_path)
    assert (settings.strategy, settings.preload) == ("independent", ("json", "csv"))
    assert (settings.port, settings.name) == (7000, "a-1")


def test_a_codec_may_be_a_table_or_a_text(tmp_path: Path) -> None:
    as_table = in_file(tmp_path, '[run]\ncodec = { name = "threshold", tau = 0.0078125 }\n')
    from_table = resolve({}, environ={}, cwd=as_table).codec
    assert from_table == resolve({"codec": "threshold:tau=0.0078125"}, environ={}, cwd=NOWHERE).codec


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"workers": 0}, ["--workers = 0", "from 1 to"]),
        ({"strategy": "asinc"}, ["--strategy = 'asinc'", "expected one of", "did you mean 'async'?"]),
        ({"topology": "complet"}, ["one of complete", "did you mean 'complete'?"]),
        ({"codec": "tehter"}, ["--codec = 'tehter'", "did you mean 'tether'?"]),
        ({"codec": "threshold:tau=0.3"}, ["--codec", "0.3", "power of two"]),
        ({"codec": "threshold:tau=-0.5"}, ["--codec", "-0.5"]),
        ({"port": 70_000}, ["--port = 70000", "from 0 to 65535"]),
        ({"name": "../escape"}, ["--name = '../escape'"]),
        ({"name": "latest"}, ["newest run"]),
        ({"engine": "lcoal"}, ["engine 'lcoal'", "one of local", "did you mean 'local'?"]),
        ({"transport": "zqm"}, ["transport 'zqm'", "did you mean 'zmq'?"]),
        ({"bind": "  "}, ["--bind"]),
        ({"log": "loud"}, ["debug, info, warning, error"]),
        ({"runs_dir": ""}, ["--runs-dir"]),
    ],
)
def test_a_bad_flag_is_named_with_what_was_expected(flags: dict[str, object], words: list[str]) -> None:
    with pytest.raises(Misuse) as caught:
        resolve(flags, environ={}, cwd=NOWHERE)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[run]\nstratgy = "async"\n', ["[run] stratgy", "did you mean 'strategy'?"]),
        ("[runs]\nworkers = 2\n", ["runs", "[network], [output], [ray], [run], [ssh]", "did you mean 'run'?"]),
        ("workers = 2\n", ["workers belongs into [run]"]),
        ("[run]\nworkers = true\n", ["[run] workers = True", "a whole number"]),
        ("[run]\nworkers = 2.5\n", ["[run] workers = 2.5"]),
        ("[run]\ncodec = { tau = 1 }\n", ["a table with a name"]),
        ("[run\n", ["a TOML file"]),
        ("[run]\npreload = 3\n", ["a list of module names"]),
    ],
)
def test_a_bad_file_is_named_with_what_was_expected(tmp_path: Path, text: str, words: list[str]) -> None:
    with pytest.raises(Misuse) as caught:
        resolve({}, environ={}, cwd=in_file(tmp_path, text))
    for word in [*words, "taut.toml"]:
        assert word in str(caught.value)


def test_a_file_that_was_asked_for_must_exist(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="a file that exists"):
        resolve({}, config_file=tmp_path / "absent.toml", environ={})


@given(st.text(max_size=20))
@settings(deadline=None)
def test_any_text_as_a_strategy_is_taken_or_refused(word: str) -> None:
    if word in REGISTRY:
        assert resolve({"strategy": word}, environ={}, cwd=NOWHERE).strategy == word
    else:
        with pytest.raises(Misuse) as caught:
            resolve({"strategy": word}, environ={}, cwd=NOWHERE)
        assert repr(word) in str(caught.value)


def test_threads_share_the_cores_out() -> None:
    assert Settings(workers=10_000).threads_per_worker == 1
    assert Settings(workers=1).threads_per_worker == cores()
    assert Settings(workers=1, threads=3).threads_per_worker == 3


def test_the_description_tells_sources_and_skips_dull_defaults() -> None:
    line = resolve({"workers": 4}, environ={"TAUT_PORT": "7001"}, cwd=NOWHERE).describe()
    assert "workers=4 (flag)" in line
    assert "port=7001 (TAUT_PORT)" in line
    assert "strategy=async" in line
    assert "advertise" not in line


def test_what_was_not_set_follows_the_strategy() -> None:
    plain = resolve({}, environ={}, cwd=NOWHERE).fitted()
    assert (plain.codec, plain.finish, plain.topology) == ("tether", "any", "complete")
    mixing = resolve({"strategy": "dpsgd", "workers": 4}, environ={}, cwd=NOWHERE).fitted()
    assert (mixing.codec, mixing.finish) == ("dense", "average")
    assert "codec=dense  finish=average" in mixing.describe()
    assert "codec" not in mixing.shared()["explicit"]  # type: ignore[operator]


def test_what_was_set_is_kept_or_refused() -> None:
    kept = resolve({"strategy": "dpsgd", "finish": "best"}, environ={"TAUT_CODEC": "dense"}, cwd=NOWHERE).fitted()
    assert (kept.codec, kept.finish) == ("dense", "best")
    assert kept.shared()["explicit"] == ["strategy", "codec", "finish"]
    with pytest.raises(Misuse, match="expected dense"):
        resolve({"strategy": "dpsgd"}, environ={"TAUT_CODEC": "tether"}, cwd=NOWHERE).fitted()
    with pytest.raises(Misuse, match="15 workers"):
        resolve({"topology": "torus:3x5", "workers": 16}, environ={}, cwd=NOWHERE).fitted()


def test_a_graph_is_read_from_its_file_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "graph.txt").write_text("0 1\n1 2  # a line\n")
    settings = resolve({"topology": f"file:{tmp_path / 'graph.txt'}", "workers": 3}, environ={}, cwd=NOWHERE)
    assert settings.fitted().topology == "edges:0-1,1-2"
    with pytest.raises(Misuse, match="No such file"):
        resolve({"topology": f"file:{tmp_path / 'absent'}"}, environ={}, cwd=NOWHERE)


def test_no_launcher_means_no_environment() -> None:
    assert worker_environment({}) is None


def test_a_launcher_without_a_token_is_a_mistake() -> None:
    with pytest.raises(Misuse, match="TAUT_TOKEN_FILE"):
        worker_environment({"TAUT_SUPERVISOR": "tcp://127.0.0.1:1"})


@given(
    st.builds(
        WorkerEnvironment,
        supervisor=st.text(min_size=1),
        token=st.text(min_size=1),
        token_file=st.none() | st.text(min_size=1),
        bind=st.text(min_size=1),
        advertise=st.none() | st.text(min_size=1),
    )
)
def test_what_the_launcher_says_is_what_the_worker_reads(told: WorkerEnvironment) -> None:
    assert worker_environment(told.variables()) == told


def test_the_token_is_not_shown() -> None:
    assert "secret" not in repr(WorkerEnvironment("tcp://h:1", token="secret"))


def test_nothing_near_gives_no_guess() -> None:
    assert did_you_mean("zzz", ["async"]) == ""


@pytest.mark.parametrize(
    ("environ", "flags", "threads", "source"),
    [
        ({"OMP_NUM_THREADS": "1"}, {}, 1, "OMP_NUM_THREADS"),
        ({"OMP_NUM_THREADS": "3,2", "MKL_NUM_THREADS": "5"}, {}, 3, "OMP_NUM_THREADS"),
        ({"MKL_NUM_THREADS": "5"}, {}, 5, "MKL_NUM_THREADS"),
        ({"OMP_NUM_THREADS": "1"}, {"threads": 2}, 2, "flag"),
        ({"OMP_NUM_THREADS": "1", "TAUT_THREADS": "4"}, {}, 4, "TAUT_THREADS"),
        ({"OMP_NUM_THREADS": "many"}, {}, None, "default"),
    ],
)
def test_threads_of_the_environment_are_kept_unless_taut_is_told_otherwise(
    environ: dict[str, str], flags: dict[str, object], threads: int | None, source: str, tmp_path: Path
) -> None:
    settings = resolve(flags, environ=environ, cwd=tmp_path)
    assert (settings.threads, settings.sources["threads"]) == (threads, source)
