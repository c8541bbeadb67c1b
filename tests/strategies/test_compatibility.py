"""What goes together, what is chosen where nothing was set, and what is refused."""

from __future__ import annotations

import pytest

from taut.core.finishes import FINISHES
from taut.errors import Misuse
from taut.strategies.compatibility import codec_for, combine, default_finish
from taut.strategies.registry import REGISTRY, Choice, parse


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_every_strategy_alone_is_a_whole_combination(name: str) -> None:
    """One word is enough: the rest follows from it, and passes the check that it must pass when it is written out."""
    chosen = combine(name, workers=4)
    assert combine(name, chosen.topology, chosen.codec, chosen.finish, workers=4) == chosen
    assert chosen.finish in FINISHES
    if Choice(name).is_method:
        assert chosen.codec == chosen.strategy.kind.codecs[0]


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_any_is_the_default_only_where_replicas_agree(name: str) -> None:
    choice = parse(name)
    agrees = choice.kind.consensus if choice.is_method else choice.kind.complete
    if name == "codistillation":
        assert default_finish(choice) == "best"
    else:
        assert default_finish(choice) == ("any" if agrees else "average")


def test_async_is_relayed_where_not_everybody_is_wired() -> None:
    assert combine("async").strategy.name == "async"
    relayed = combine("async", "ring", workers=4)
    assert (relayed.strategy.name, relayed.codec, relayed.finish) == ("relay", "tether", "any")


def test_a_wish_that_the_strategy_cannot_use_yields() -> None:
    assert codec_for(parse("dpsgd"), ["threshold:tau=2^-8", "dense"]) == "dense"
    assert codec_for(parse("async"), ["threshold:tau=2^-8", "dense"]) == "threshold:tau=2^-8"


@pytest.mark.parametrize("finish", FINISHES)
def test_every_finish_is_allowed_with_every_strategy(finish: str) -> None:
    for name in REGISTRY:
        assert combine(name, finish=finish).finish == finish


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"strategy": "dpsgd", "codec": "threshold:tau=2^-8"}, "expected dense"),
        ({"strategy": "relaysgd", "codec": "topk"}, "relays do not conserve the mean"),
        ({"strategy": "independent", "topology": "ring"}, "expected complete"),
        ({"strategy": "adpsgd", "topology": "one-peer"}, "without directions"),
        ({"strategy": "gossipgrad", "topology": "ring"}, "expected complete"),
        ({"strategy": "dpsgd", "topology": "torus:3x5", "workers": 16}, "15 workers"),
        ({"strategy": "async", "finish": "first"}, "average, best, any, ensemble"),
    ],
)
def test_what_cannot_work_is_refused(given: dict[str, object], words: str) -> None:
    with pytest.raises(Misuse, match=words):
        combine(**given)  # type: ignore[arg-type]


def test_only_sync_is_closed_to_latecomers() -> None:
    assert combine("sync").admits_late
    assert not combine("sync:schedule=gloo").admits_late, "torch.distributed dies with a worker"
    assert combine("async").admits_late
    assert combine("sync for 5 steps, then averaging for 9 steps, then async").admits_late
    assert not combine("sync:schedule=gloo for 5 steps, then async").admits_late, "not before that is over, nor after it"
    assert combine("dpsgd").admits_late
