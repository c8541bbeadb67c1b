"""Preparation of a supervisor: its address, its origin, the run's folder with its keys, the plan from the settings,
the journal."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from taut.config import PATIENCE_S
from taut.core.checkpoint_names import FOLDER
from taut.core.early_stopping import BEST_MODEL
from taut.core.handover import SETTING
from taut.core.versions import package_versions
from taut.errors import Misuse, StorageFailed, Superseded
from taut.specs import parse_early_stop, parse_interval
from taut.supervisor.checkpoints.folder import Found, Launch
from taut.supervisor.run.plan import RunPlan
from taut.supervisor.storage.journal import Journal
from taut.supervisor.storage.previous_run import KEYS_FILE, PreviousRun
from taut.supervisor.storage.run_lock import RunLock
from taut.supervisor.storage.store_writer import StoreWriter, plain
from taut.transport.keys import RunKeys, write_token_file

if TYPE_CHECKING:
    from taut.strategies.phases import PhaseSchedule

TOKEN_FILE = "token"
_PACKAGES = ("taut", "torch", "numpy", "pyzmq", "msgspec", "safetensors")


class Listen(Struct, frozen=True):
    """The address for workers, and the transport; ``advertise``: announced instead of ``bind``."""

    bind: str = "127.0.0.1"
    port: int = 0
    advertise: str | None = None
    transport: str = "zmq"


class Origin(Struct, frozen=True):
    """How a supervisor came about. ``command``: the command line; ``launch``: how workers are started, for a later
    resume; ``resume``: the checkpoint that the run goes on from; ``previous``: the run of the supervisor that died;
    ``lock``: of the run's folder, if it is taken already; ``keys``: the run's, if they were made before."""

    command: str = ""
    launch: Launch | None = None
    resume: Found | None = None
    previous: PreviousRun | None = None
    lock: RunLock | None = None
    keys: RunKeys | None = None


def held(run_dir: Path, origin: Origin) -> RunLock:
    """Return the folder's lock. Raise ``Misuse`` if another process has it. Without the lock, go on for a previous
    supervisor that has it but is stopped or cut off; raise ``Superseded`` if the holder is another that is about to
    begin."""
    if origin.lock is not None:
        return origin.lock
    if origin.previous is None:
        return RunLock.take(run_dir)
    lock = RunLock(run_dir)
    if not lock.try_take() and lock.holder().doing == "preparing":
        refusal = lock.refusal()
        lock.release()
        raise Superseded(str(refusal))
    return lock


def write_keys(run_dir: Path, keys: RunKeys) -> None:
    """Write the token, for workers, and the keys, for the run's owner; both readable by the user alone."""
    write_token_file(run_dir / TOKEN_FILE, keys.token)
    write_token_file(run_dir / KEYS_FILE, keys.text)


def told(settings: Mapping[str, object], run_dir: Path, resume: Found | None, handover: list[str]) -> dict[str, object]:
    """Return the settings that workers are told, with the folders for their models and checkpoints, and the checkpoint
    that the run continues."""
    every: dict[str, object] = {**settings, SETTING: handover}
    if settings.get("checkpoint_every"):
        every["checkpoints"] = str(run_dir / FOLDER)
    if settings.get("validate_every"):
        every["best_model"] = str(run_dir / BEST_MODEL)
    if resume is not None:
        kept, folder = resume.manifest, str(resume.folder.absolute())
        every["resume"] = {"folder": folder, "complete": kept.complete, "parts": kept.settings.get("island", 1)}
    return every


def plan_of(settings: Mapping[str, object], run: str, workers: int, seed: int) -> RunPlan:
    """Return the settings that the state machine needs; the workers read the rest."""
    from taut.strategies.compatibility import codec_name, codecs_in_use, combine
    from taut.strategies.phases import parse_schedule
    from taut.strategies.rate_scaling import scaling_in

    strategy = parse_schedule(settings.get("strategy") or "async")  # type: ignore[arg-type]  # it says so itself
    topology, finish = (None if settings.get(key) is None else str(settings[key]) for key in ("topology", "finish"))
    chosen, text = combine(strategy, topology, finish=finish), json.dumps(plain(settings))
    codec = None if settings.get("codec") is None else str(settings["codec"])
    used = codecs_in_use(strategy, topology or "complete", [codec])
    alone = _parts(settings) or _clients(strategy)
    fixed = "" if chosen.admits_late else "whose strategy, as it is set, holds its workers together (gloo, nccl)"
    if workers < 1:
        raise Misuse(f"{workers} workers", "at least 1", "leave it out to run alone")
    if len(text) > 4096:
        raise Misuse(f"settings of {len(text)} characters", "at most 4096 as JSON", "shorten the longest of them")
    return RunPlan.of(
        chosen,
        run=run,
        seed=seed,
        workers=workers,
        settings=text,
        host=socket.gethostname(),
        strategy=str(strategy),
        patience_s=float(str(settings.get("patience_s") or PATIENCE_S)),
        rate_scaling=scaling_in(settings, workers),
        resumed="resume" in settings,
        part=int(str(settings.get("part", 0))),
        tethered=any(codec_name(each) == "tether" for each in used),
        cannot_pause=alone,
        cannot_scale=_parts(settings) or fixed,
        early_stop=parse_early_stop(settings["stop_early"]) if settings.get("stop_early") else None,
        checkpoint_every=parse_interval(settings["checkpoint_every"]) if settings.get("checkpoint_every") else None,
    )


def _parts(settings: Mapping[str, object]) -> str:
    """Return "of islands" for a run that trains one part of a model; each part has a supervisor of its own."""
    return "of islands" if int(str(settings.get("island") or 1)) > 1 else ""


def _clients(schedule: PhaseSchedule) -> str:
    """Return "of clients" for a run whose rounds wait for every worker's clients."""
    from taut.strategies.periodic.fedavg import FedAvg

    methods = [choice.method() for choice in schedule.choices if choice.is_method]
    return (
        "of clients, whose rounds wait for all" if any(isinstance(one, FedAvg) and one.clients for one in methods) else ""
    )


def open_journal(
    run_dir: Path, run: str, now: float, settings: Mapping[str, object], origin: Origin
) -> tuple[Journal, int]:
    """Return the journal, without a store if the disk fails, since training needs none; and the supervisor's term, if
    the run is resumed. Raise ``Superseded`` if another process continues ``previous``."""
    previous = origin.previous
    began_at = time.time() if previous is None else previous.began_at
    term = 0
    try:
        store = StoreWriter(run_dir, run)
    except StorageFailed as error:
        return Journal(None, now, began_at, str(error)), term
    try:
        if previous is not None:
            store.claim(previous.term)
        if origin.resume is not None:
            term = store.resumed(began_at)
        store.begin(began_at, origin.command, settings, package_versions(*_PACKAGES))
    except StorageFailed as error:
        store.close()
        return Journal(None, now, began_at, str(error)), term
    except Superseded:
        store.close()
        raise
    return Journal(store, now, began_at), term
