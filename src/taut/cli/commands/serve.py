"""``taut serve``: one tier of a model that was trained with ``taut.tiers``: a device, an edge or the cloud."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from taut.cli.launch import Interrupts
from taut.cli.output.console import notes
from taut.errors import Misuse

if TYPE_CHECKING:
    from taut.tiers import Tiers
    from taut.tiers.serving import Uplink

CLOUD_TIMEOUT_S, EDGE_TIMEOUT_S = 1.0, 3.0  # for an answer: a device waits longer than its edge does
DEVICES_WAIT_S = 0.2  # of an edge for the other devices of a batch


class Tier(StrEnum):
    device = "device"
    edge = "edge"
    cloud = "cloud"


def serve(
    model: Annotated[
        str,
        typer.Argument(
            metavar="FILE.py:FUNCTION", help="A function without arguments that returns the taut.tiers.Tiers."
        ),
    ],
    *,
    tier: Annotated[Tier, typer.Option(help="Which tier this process is.")],
    weights: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The trained model.safetensors; default: as FUNCTION made it.")
    ] = None,
    up: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="The tier above: tcp://HOST:PORT, as it prints it.")
    ] = None,
    token_file: Annotated[Path | None, typer.Option(metavar="FILE", help="The token of the tier above.")] = None,
    listen: Annotated[
        str, typer.Option(metavar="HOST[:PORT]", help="Where an edge or a cloud is reached.")
    ] = "127.0.0.1",
    keys: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The keys of an edge or a cloud, as `taut token keys DIR` makes them."),
    ] = None,
    sure: Annotated[
        float, typer.Option(metavar="0..1", help="The entropy up to which a device or an edge is sure.")
    ] = 0.2,
    device: Annotated[int, typer.Option(metavar="N", help="The number of this device, from 0.")] = 0,
    views: Annotated[Path | None, typer.Option(metavar="FILE.npy", help="What this device sees: its samples.")] = None,
    wait: Annotated[
        float | None,
        typer.Option(
            metavar="S", help="Seconds: of an edge for its other devices (0.2), of a device for an answer (3).", min=0.0
        ),
    ] = None,
    batch: Annotated[
        int, typer.Option(metavar="N", help="Samples that a device answers at a time.", min=1, max=4096)
    ] = 32,
) -> None:
    """Serve one tier of a model. What it is not sure of, it asks the tier above; without that, it answers by itself.

    A device prints one line for each sample: its number, the class, the tier that found it, and the entropy. An edge and
    a cloud serve until Ctrl-C. Links are encrypted; only holders of the token are heard.
    """
    if not 0.0 <= sure <= 1.0:
        raise Misuse(f"--sure {sure}", "an entropy from 0 (never sure) to 1 (always)")
    if (up is None) != (token_file is None):
        given = "--up without --token-file" if up else "--token-file without --up"
        raise Misuse(given, "both", "the token is in the folder that `taut token keys DIR` made for the tier above")
    if tier is Tier.cloud and up is not None:
        raise Misuse("--tier cloud with --up", "no tier above the cloud", "drop --up")
    made = _loaded(model, weights)
    if tier is Tier.device:
        with _uplink(up, token_file, EDGE_TIMEOUT_S if wait is None else wait) as above:
            _answer(made, device, views, sure, batch, above)
    else:
        with _uplink(up, token_file, CLOUD_TIMEOUT_S) as above:
            _serve(made, tier, listen, keys, sure, DEVICES_WAIT_S if wait is None else wait, above)


def _loaded(written: str, weights: Path | None) -> Tiers:
    import runpy

    from taut.tiers import Tiers

    file, _, function = written.rpartition(":")
    if not file or not Path(file).is_file():
        raise Misuse(f"model {written!r}", "FILE.py:FUNCTION, with a file that exists", "as in examples/tiers.py:build")
    made = runpy.run_path(file, run_name="taut.serve").get(function)
    if not callable(made):
        raise Misuse(f"model {written!r}", f"a function {function!r} in {file}")
    model = made()
    if not isinstance(model, Tiers):
        raise Misuse(f"{written}, which returns a {type(model).__name__}", "a taut.tiers.Tiers")
    if weights is not None:
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            model.load_state_dict(load_file(weights))
        except OSError:
            given = f"--weights {weights}, which cannot be read"
            raise Misuse(given, "a file that exists", "model.safetensors of a run") from None
        except (SafetensorError, RuntimeError) as error:
            why = str(error).splitlines()[-1].strip()
            raise Misuse(
                f"--weights {weights} ({why})", f"the weights of {written}", "model.safetensors of its run"
            ) from None
    model.eval()
    return model


@contextmanager
def _uplink(up: str | None, token_file: Path | None, timeout_s: float) -> Iterator[Uplink | None]:
    if up is None or token_file is None:
        yield None
        return
    from taut.tiers.serving import Uplink
    from taut.transport.keys import Token, WorkerKeys, read_token_file
    from taut.transport.transport import transport_of

    token = Token.parse(read_token_file(token_file))
    transport = transport_of(up).connect(WorkerKeys.generate(), "127.0.0.1", None, (up, token))
    try:
        yield Uplink(transport, timeout_s)
    finally:
        transport.close()


def _answer(model: Tiers, device: int, views: Path | None, sure: float, batch: int, above: Uplink | None) -> None:
    from taut.tiers.serving import DeviceTier

    if not 0 <= device < len(model.devices):
        raise Misuse(f"--device {device}", f"0 to {len(model.devices) - 1}, a device of the model")
    samples = _read(views)
    tiers: Counter[str] = Counter()
    here = DeviceTier(model, device, sure, above)
    for first in range(0, len(samples), batch):
        try:
            answers = here.answer(samples[first : first + batch], first)
        except RuntimeError as error:
            given = f"--views {views} of shape {tuple(samples.shape)} ({str(error).splitlines()[0]})"
            raise Misuse(given, f"samples that device {device} takes") from None
        for one in answers:
            sys.stdout.write(f"{one.sample}\t{one.label}\t{one.tier}\t{one.unsure:.4f}\n")
            tiers[one.tier] += 1
    sent = above.sent if above is not None else 0
    shares = ", ".join(f"{name} {100 * count / len(samples):.0f}%" for name, count in tiers.items())
    text = f"{len(samples)} samples: {shares}; {sent / len(samples):.1f} bytes a sample sent, headers included"
    notes().print(text, markup=False, soft_wrap=True)


def _read(views: Path | None) -> Any:
    import numpy as np
    import torch

    if views is None:
        raise Misuse("--tier device without --views", "a file of samples", "numpy.save('views.npy', array)")
    try:
        array = np.load(views, allow_pickle=False)
        found = torch.from_numpy(np.asarray(array, np.float32))
    except (ValueError, TypeError, EOFError):
        raise Misuse(f"--views {views}", "an array of numbers, as numpy.save writes it") from None
    if not found.ndim or not len(found):
        raise Misuse(f"--views {views} of shape {tuple(found.shape)}", "at least one sample")
    return found


def _serve(
    model: Tiers, tier: Tier, listen: str, keys: Path | None, sure: float, wait_s: float, above: Uplink | None
) -> None:
    from taut.tiers.serving import UpperTier
    from taut.transport.keys import read_keys_file
    from taut.transport.zmq.factory import Zmq

    if keys is None:
        raise Misuse(
            f"--tier {tier.value} without --keys", "the keys of this tier", "`taut token keys DIR` makes DIR/keys"
        )
    with Interrupts() as interrupts:
        socket = Zmq().listen(read_keys_file(keys), listen, 0, None)
        try:
            upper = UpperTier(socket, model, "edge" if tier is Tier.edge else "cloud", sure, above, wait_s)
            notes().print(f"{tier.value} at {socket.address}; Ctrl-C to stop", markup=False, soft_wrap=True)
            while not interrupts.count:
                upper.work(0.2)
        finally:
            socket.close(1.0)
        told = ", ".join(f"{name} {count}" for name, count in upper.answered.items())
        notes().print(f"samples answered: {told}; {upper.refused} messages refused", markup=False)
