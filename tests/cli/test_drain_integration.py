"""Orders to a run that is going: one worker leaves, tokens come and go, the run is drained; no secret shows anywhere."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner
from zmq.utils import z85

from taut.cli.main import app
from taut.core.messages import TensorSpec
from taut.engines.local import LocalEngine
from taut.errors import Misuse, Refused, SupervisorLost
from taut.supervisor.control import DrainRun, order
from taut.supervisor.service import Supervisor
from taut.supervisor.storage.previous_run import KEYS_FILE, PreviousRun, read_previous_run
from taut.testing.cluster import LocalCluster
from taut.testing.hostile import HostileWorker
from taut.transport.keys import RunKeys, Token, read_token_file

JOB = Path(__file__).parents[1] / "integration" / "job.py"
MODEL = [TensorSpec("w", [2], "float32", "trained")]


def taut(*arguments: object) -> str:
    """What a command says, on either stream; its errors are raised."""
    done = CliRunner().invoke(app, [str(each) for each in arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


def said(*arguments: object) -> dict[str, object]:
    found: dict[str, object] = json.loads(taut(*arguments, "--json"))
    return found


def written_forms(secret: bytes) -> list[bytes]:
    """How 32 bytes may have been written down."""
    plain = base64.b64encode(secret).rstrip(b"=")
    return [secret, secret.hex().encode(), plain, base64.urlsafe_b64encode(secret).rstrip(b"="), z85.encode(secret)]


def secrets_of(keys: RunKeys) -> list[bytes]:
    raw = [z85.decode(keys.server_secret), z85.decode(keys.admin.client_secret)]
    forms: list[bytes] = []
    for one in keys.join_secrets:
        token = keys.token_of(one.name)
        raw += [one.secret, z85.decode(Token.parse(token).client_secret)]
        forms += [token.encode(), token.encode()[-43:]]
    return forms + [form for secret in raw for form in written_forms(secret)]


def test_a_worker_leaves_tokens_come_and_go_and_the_run_is_drained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(LocalCluster, "engine", LocalEngine)  # command lines are looked at
    folder = tmp_path / "taut-runs" / "otter"
    args = ["--gate", str(tmp_path / "gate")]
    with LocalCluster(JOB, 3, folder, args=args) as cluster:
        cluster.until(lambda v: len(v.workers) == 3 and all(r.statistics.steps > 5 for r in v.workers), "steps")

        assert said("token", "new", "otter", "--name", "guests", "--expires", "1h")["expired"] is False
        guests = folder / "token-guests"
        assert guests.stat().st_mode & 0o777 == 0o600
        Token.parse(read_token_file(guests))
        tokens = said("token", "list", "otter")["tokens"]
        assert [(one["token"], one["workers"], one["revoked"]) for one in tokens] == [  # type: ignore[index,union-attr]
            ("first", 3, False),
            ("guests", 0, False),
        ]
        assert "void from now on" in str(said("token", "revoke", "otter", "guests")["said"])
        with pytest.raises(Misuse, match="did you mean 'guests'"):
            taut("token", "revoke", "otter", "gests")

        assert "told to go" in str(said("drain", "otter", 1)["said"])
        view = cluster.until(lambda v: any(r.rank == 1 and r.state == "gone" for r in v.workers), "worker 1 to leave")
        assert next(row.reason for row in view.workers if row.rank == 1) == "left"
        (left,) = cluster.until_exits(1)
        assert left.clean
        steps = {row.rank: row.statistics.steps for row in view.workers}
        cluster.until(lambda v: all(r.statistics.steps > steps[r.rank] for r in v.workers if r.rank != 1), "more steps")
        for worker, why in ((1, "is gone"), (9, "a worker of this run: 0, 2"), ("x", "a whole number")):
            with pytest.raises(Misuse, match=why):
                taut("drain", "otter", worker)

        _nothing_shows_a_secret(folder, RunKeys.parse(read_token_file(folder / KEYS_FILE)), cluster)
        assert "being drained" in taut("drain", "otter")
        outcome = cluster.outcome()
        cluster.until_exits(3)
    assert (outcome.exit_code, outcome.identical, outcome.failures) == (0, True, ())
    assert all(each.clean for each in cluster.exits)
    with pytest.raises(Misuse, match="which is over"):
        taut("drain", "otter")
    with pytest.raises(Misuse, match="did you mean 'otter'"):
        taut("drain", "oter")


def _nothing_shows_a_secret(folder: Path, keys: RunKeys, cluster: LocalCluster) -> None:
    """Not the store, not a log, not a command line. (The files that hold them are for the user's eyes alone.)"""
    private = {"token", KEYS_FILE, "token-guests"}
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert {path.name for path in files if path.stat().st_mode & 0o077 == 0} >= private
    shown = {str(path): path.read_bytes() for path in files if path.name not in private}
    assert {"run.sqlite", "run.sqlite-wal", "worker-0.log"} <= {Path(name).name for name in shown}
    me = psutil.Process(os.getpid())
    for process in (me, *me.children(recursive=True)):
        shown[f"process {process.pid}"] = Path(f"/proc/{process.pid}/cmdline").read_bytes()
    assert len([name for name in shown if name.startswith("process")]) > 2, "the workers are seen"
    assert any(secret in (folder / KEYS_FILE).read_bytes() for secret in secrets_of(keys)), "they would be found"
    for secret in secrets_of(keys):
        assert not [name for name, data in shown.items() if secret in data]


def test_orders_without_a_model(tmp_path: Path) -> None:
    """A revoked token with --expel takes its workers along; who comes with it is told why not."""
    settings: dict[str, object] = {"strategy": "async", "workers": 1, "seed": 0}
    supervisor = Supervisor(settings, tmp_path / "runs" / "owl", run="owl", workers=1, seed=0)
    supervisor.start()
    runs = ("--runs-dir", tmp_path / "runs")
    first = HostileWorker(supervisor.address, supervisor.token, MODEL)
    try:
        first.join()
        file = tmp_path / "guests"
        taut("token", "new", "owl", *runs, "--name", "guests", "--out", file)
        guest = HostileWorker(supervisor.address, read_token_file(file), MODEL)
        try:
            guest.join()
            assert "1 workers that came with it were expelled" in str(
                said("token", "revoke", "owl", "guests", "--expel", *runs)["said"]
            )
            guest.until(lambda: guest.expelled is not None)
            assert guest.expelled == "its token (guests) was revoked"
        finally:
            guest.close()
        with pytest.raises(Misuse, match="the last one"):
            taut("drain", "owl", first.rank, *runs)
        with pytest.raises(Misuse, match="--expel without a worker"):
            taut("drain", "owl", "--expel", *runs)
        with pytest.raises(Misuse, match="1 s to 10 years"):
            taut("token", "new", "owl", "--expires", "1ms", *runs)
        again = read_previous_run(tmp_path / "runs" / "owl")
        assert again.keys.revoked == {"guests"}, "it stays so when the supervisor comes back"
        _cannot_join(supervisor.address, read_token_file(file))
    finally:
        first.close()
        supervisor.stop()


def _cannot_join(address: str, token: str) -> None:
    import torch

    from taut.config import WorkerEnvironment
    from taut.worker.joining.connection import SocketConnector
    from taut.worker.model.flat_params import FlatParams
    from taut.worker.session import WorkerSession

    with pytest.raises(Refused, match="expired or was revoked: ask for a new one"):
        WorkerSession(SocketConnector(WorkerEnvironment(address, token=token)), FlatParams(torch.nn.Linear(1, 1)))


def test_a_supervisor_that_does_not_answer_can_be_brought_back() -> None:
    previous = PreviousRun("otter", {}, "", 0.0, 0, "tcp://127.0.0.1:1", "127.0.0.1", None, 0.0, b"", RunKeys.generate())
    with pytest.raises(SupervisorLost, match="taut supervisor --recover otter"):
        order(previous, DrainRun("enough"), patience_s=0.2)
