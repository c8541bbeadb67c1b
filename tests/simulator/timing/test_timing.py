"""Laws of timing alone: what must come out where the answer is known."""

from __future__ import annotations

import math

import pytest

from taut.collectives import named
from taut.errors import Misuse
from taut.simulator.models.costs import CodecCost, Costs
from taut.simulator.models.links import Link, Links
from taut.simulator.models.network import wire_nbytes
from taut.simulator.models.speeds import Speeds
from taut.simulator.result import Simulated
from taut.simulator.scenario import Scenario
from taut.simulator.timing.simulation import simulate_timing
from taut.simulator.timing.stand_ins import FRAME_NBYTES
from taut.simulator.trace import Trace
from taut.strategies.delivery.flow_control import SEEN_EVERY
from taut.strategies.registry import REGISTRY
from taut.supervisor.metrics import compression, total

BITS = {"tether": 0.4, "threshold": 0.4, "dense": 32.0, "topk": 0.64, "chunked": 0.16}
FREE = Costs(
    codecs={name: CodecCost(0.0, 0.0, bits) for name, bits in BITS.items()},
    message_s=0.0,
    send_s_per_byte=0.0,
    receive_s_per_byte=0.0,
    copy_s_per_byte=0.0,
)
# In a round of fedavg only some train, so that all together take longer: here all do.
WRITTEN = {"fedavg": "fedavg:fraction=1"}
MIXED = ("dpsgd", "sgp", "choco", "gossipgrad", "relaysgd")  # they wait for neighbours


def run(strategy: str, workers: int = 4, steps: int = 20, **given: object) -> Simulated:
    return simulate_timing(Scenario(workers, strategy, steps=steps, **{"costs": FREE, **given}))  # type: ignore[arg-type]


def straggle(strategy: str, workers: int = 4, steps: int = 40, **given: object) -> Simulated:
    return run(strategy, workers, steps, speeds=Speeds(0.01, stragglers={1: 4.0}), **given)


@pytest.mark.parametrize("name", sorted(REGISTRY))
@pytest.mark.parametrize("workers", [1, 4, 11])
def test_where_nothing_costs_anything_a_run_takes_its_steps(name: str, workers: int) -> None:
    done = run(WRITTEN.get(name, name), workers)
    assert done.wall_s == pytest.approx(0.2, abs=1e-12)
    assert all(worker.steps == 20 and worker.samples == 20 * 64 for worker in done.workers.values())


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_the_split_of_every_workers_time_is_the_wall_time(name: str) -> None:
    links = Links(Link(1e8, 1e-3, jitter_s=1e-4))
    speeds = Speeds(0.02, "lognormal:0.3")
    done = simulate_timing(Scenario(3, name, steps=12, parameters=100_000, links=links, speeds=speeds))
    assert done.wall_s >= 12 * 0.01
    for worker in done.workers.values():
        parts = (worker.compute_s, worker.encode_s, worker.send_s, worker.wait_s, worker.merge_s, worker.data_s)
        assert worker.wall_s == pytest.approx(done.wall_s, rel=1e-9)
        assert sum(parts) == pytest.approx(worker.wall_s, rel=1e-9)


@pytest.mark.parametrize("name", ["sync", "averaging:every=1", "dpsgd", "sync:schedule=tree"])
@pytest.mark.parametrize("workers", [4, 12])
def test_who_waits_for_all_is_as_slow_as_the_slowest(name: str, workers: int) -> None:
    assert straggle(name, workers).wall_s == pytest.approx(1.6, rel=1e-9)


def rate(done: Simulated, until_s: float) -> float:
    """Steps per second of all, until then."""
    last = {point.rank: point for point in done.history if point.time_s <= until_s + 1e-6}
    return sum(point.steps for point in last.values()) / until_s


@pytest.mark.parametrize("name", ["async", "independent", "gossip", "adpsgd"])
def test_who_waits_for_nobody_loses_only_what_the_straggler_does_not_do(name: str) -> None:
    done = straggle(name, steps=64)
    assert rate(done, 0.6) == pytest.approx((3 + 1 / 4) / 4 * 400, rel=0.02)


def test_a_backup_worker_makes_up_for_the_straggler() -> None:
    """It would be 1.6 s: the others go on without it, and it drops three gradients of four."""
    done = straggle("sync:backup=1", steps=64)
    assert rate(done, 0.6) > 0.95 * 300
    assert "dropped=0" not in done.workers[1].counted


def test_ssp_lies_between_async_and_sync() -> None:
    sync, ssp, free = (rate(straggle(name, steps=64), 0.6) for name in ("sync", "ssp:3", "async"))
    assert sync < ssp < free
    slack = straggle("ssp:3", steps=64)
    at = [point for point in slack.history if point.time_s <= 0.6 + 1e-6]
    fastest = max(point.steps for point in at if point.rank != 1)
    slowest = max(point.steps for point in at if point.rank == 1)
    assert fastest - slowest <= 4  # 3 ahead, and the step under way


@pytest.mark.parametrize("workers", [2, 4, 8])
def test_a_ring_meets_its_formula(workers: int) -> None:
    """2 (p - 1) / p * n / bandwidth, and a latency for each of 2 (p - 1) hops at most: pieces overlap them."""
    bits_per_s, latency_s, parameters = 1e9, 1e-3, 4_000_000
    links = Links(Link(bits_per_s, latency_s))
    few, many = (run("sync:bucket_mib=0", workers, n, parameters=parameters, links=links).wall_s for n in (4, 12))
    exchange_s = (many - few) / 8 - 0.01
    wire = wire_nbytes(4 * parameters) / (4 * parameters)
    schedule = named("ring")
    least = schedule.cost(workers, 4 * parameters, 0.0, 8 * wire / bits_per_s)
    most = schedule.cost(workers, 4 * parameters, 2 * latency_s, 8 * wire / bits_per_s)
    assert least < exchange_s < most * 1.01


@pytest.mark.parametrize("schedule", ["ring", "tree", "halving-doubling", "torus"])
@pytest.mark.parametrize("workers", [4, 12])
def test_all_reduces_move_the_bytes_that_their_formula_says(schedule: str, workers: int) -> None:
    parameters = 1_200_000 - 7
    few, many = (run(f"sync:schedule={schedule},bucket_mib=0", workers, n, parameters=parameters).workers for n in (3, 5))
    for rank in range(workers):
        sent = (many[rank].bytes_sent - few[rank].bytes_sent) / 2
        formula = named(schedule).bytes_sent(workers, rank, 4 * (parameters + 7))
        assert sent == pytest.approx(formula, rel=1e-3)  # and the records of the pieces


@pytest.mark.parametrize(
    "workers", [2, 3, 5, 8, 40, *(pytest.param(many, marks=pytest.mark.long) for many in (4, 6, 7, 9, 200))]
)
def test_dense_sync_sends_as_much_as_a_ring_all_reduce(workers: int) -> None:
    few, many = (total(run("sync:schedule=ring", workers, n, parameters=2_000_000).workers.values()) for n in (2, 42))
    assert (many.bytes_dense - few.bytes_dense) / (many.bytes_sent - few.bytes_sent) == pytest.approx(1.0, rel=0.01)
    assert compression(many) == pytest.approx(1.0, rel=0.06), "the exchange at the end is sent, but belongs to no step"


def test_signs_are_fewer_bytes_than_a_ring_all_reduce() -> None:
    assert (compression(total(run("async", 4).workers.values())) or 0.0) > 10


@pytest.mark.parametrize("strategy", ["async", "sync", "averaging:8"])
def test_one_worker_alone_has_neither_compression_nor_staleness(strategy: str) -> None:
    done = run(strategy, 1)
    assert compression(done.workers[0]) is None
    assert done.workers[0].staleness == 0.0 and all(point.staleness == 0.0 for point in done.history)


def test_neighbours_get_whole_vectors() -> None:
    few, many = (run("dpsgd", 16, n, topology="torus").workers[5].bytes_sent for n in (10, 20))
    assert many - few == 10 * 4 * (4_000_000 + FRAME_NBYTES)


def test_codecs_send_what_their_cost_model_says() -> None:
    nbytes = round(0.4 * 1_000_000 / 8)
    few, many = (run("gossip:mix=0", 9, n, topology="torus").workers[4].bytes_sent for n in (10, 20))
    assert many - few == 10 * 4 * (nbytes + FRAME_NBYTES) + 10 * 4 // SEEN_EVERY * FRAME_NBYTES
    sent = run("async", 4, 100).workers[0]
    assert sent.bytes_sent == pytest.approx(101 * 3 * nbytes, rel=0.05)  # and reports


def test_compressed_differences_are_as_long_as_the_cost_model_says() -> None:
    few, many = (run("choco", 4, n, topology="ring", codec="topk").workers[0].bytes_sent for n in (10, 20))
    assert many - few == pytest.approx(10 * 2 * 0.01 * 8 * 1_000_000, rel=0.001)


GOSSIP_COPIES = [  # with a topology, and vectors that it sends in a step
    ("dpsgd", "ring", 2),
    ("dpsgd:tracking=true", "ring", 4),
    ("sgp", "exponential", 2),
    ("gossipgrad", "complete", 1),
    ("adpsgd", "ring", None),
    ("codistillation:every=1", "complete", 3),
]


@pytest.mark.parametrize(("strategy", "topology", "messages"), GOSSIP_COPIES)
def test_what_changes_of_copies_is_as_long_as_the_cost_model_says(
    strategy: str, topology: str, messages: int | None
) -> None:
    coded, runs = 0.01 * 8 * 1_000_000, {}
    for codec in ("topk", "topk:density=1", "dense"):
        few, many = (run(strategy, 4, n, topology=topology, codec=codec).workers[0].bytes_sent for n in (20, 60))
        runs[codec] = (many - few) / 40
    if messages is None:  # it asks at random
        assert runs["topk"] == pytest.approx(runs["dense"] / 50, rel=0.25)
    else:
        assert runs["topk"] == pytest.approx(messages * coded, rel=0.01)
    assert runs["dense"] == runs["topk:density=1"]


@pytest.mark.parametrize("workers", [4, 12])
def test_compressed_gradients_go_from_everybody_to_everybody(workers: int) -> None:
    few, many = (run("sync", workers, n, codec="topk") for n in (10, 20))
    sent = many.workers[0].bytes_sent - few.workers[0].bytes_sent
    assert sent == pytest.approx(10 * (workers - 1) * 0.01 * 8 * 1_000_000, rel=0.002)
    assert many.wall_s == pytest.approx(0.2, abs=1e-12)


def test_a_codec_that_does_not_pay_is_a_ring_in_virtual_time_too() -> None:
    ring, coded = (run("sync", 8, 10, codec=codec).workers[0].bytes_sent for codec in ("dense", "int8"))
    assert ring == coded


def test_encoding_a_whole_gradient_is_charged() -> None:
    dear = Costs(codecs={"topk": CodecCost(1e-9, 0.0, 0.64, 1e-3)}, message_s=0.0)
    done = run("sync", 4, 50, codec="topk", costs=dear)
    assert done.workers[0].encode_s == pytest.approx(50 * (1e-3 + 1e-3), rel=0.01)


def test_buckets_hide_the_exchange_behind_backward() -> None:
    links, speeds = Links(Link(1e9)), Speeds(0.4)
    given = {"parameters": 16 << 20, "links": links, "speeds": speeds, "steps": 4}
    whole, cut = (run(name, 4, **given).wall_s for name in ("sync:bucket_mib=0", "sync"))  # type: ignore[arg-type]
    exchange_s = 1.5 * (64 << 20) * 8 / 1e9
    assert whole == pytest.approx(4 * 0.4 + 6 * exchange_s * 1.046, rel=0.02)  # the last two are the end
    assert whole - 4 * 0.4 * 2 / 3 < cut < whole - 0.9 * 4 * 0.4 * 2 / 3  # most of backward is used, and no more


def test_micro_batches_are_exchanged_together() -> None:
    every, each = (run(name, 4, 16).workers[0] for name in ("sync:every=4", "sync"))
    assert every.bytes_sent == pytest.approx(each.bytes_sent * 6 / 18, rel=0.02)  # two more to end together
    assert every.steps == 16


def test_costs_are_charged_to_the_worker() -> None:
    dear = Costs(codecs={"tether": CodecCost(1e-9, 1e-8, 0.4, 1e-3)}, message_s=1e-3)
    done = simulate_timing(Scenario(4, "gossip", "ring", steps=50, costs=dear))
    assert done.workers[0].encode_s == pytest.approx(50 * (1e-3 + 1e-3 / 8), rel=0.01)  # an eighth is scanned each time
    assert done.wall_s > 50 * (0.01 + 1e-3 + 2e-3)


def test_latency_makes_updates_stale() -> None:
    near, far = (
        run("async", 4, 60, links=Links(Link(latency_s=latency_s))).workers[0].staleness for latency_s in (0.0, 0.05)
    )
    assert near < 2.0
    assert far > 5.0


def test_the_same_scenario_has_the_same_trace() -> None:
    def lines(seed: int) -> list[str]:
        trace = Trace({})
        links = Links(Link(1e8, 1e-3, 1e-3, 0.001))
        given = {"links": links, "speeds": Speeds(0.02, "lognormal:0.3")}
        simulate_timing(Scenario(5, "gossip", "ring", seed=seed, steps=10, **given), trace=trace)  # type: ignore[arg-type]
        return list(trace.lines())

    assert lines(1) == lines(1) != lines(2)
    names = {name for name in ("compute", "encode", "merge") if any(f'"name":"{name}"' in line for line in lines(1))}
    assert names == {"compute", "encode", "merge"}


def test_progress_is_told() -> None:
    told: list[float] = []
    simulate_timing(Scenario(4, "dpsgd", steps=50), progress=told.append)
    assert told == sorted(told) and told[-1] == 1.0 and len(told) > 20


def test_too_many_for_a_complete_graph() -> None:
    with pytest.raises(Misuse, match="--topology tree"):
        simulate_timing(Scenario(300, "async"))
    with pytest.raises(Misuse, match="leave the codec out"):
        simulate_timing(Scenario(300, "sync", codec="topk:density=0.001"))
    assert math.isfinite(simulate_timing(Scenario(300, "async", "tree", steps=3)).wall_s)


@pytest.mark.parametrize(
    ("given", "match"),
    [
        (Scenario(0), "0 workers"),
        (Scenario(parameters=0), "0 parameters"),
        (Scenario(strategy="sync for 9 steps, then async"), "strategy"),
        (Scenario(strategy="nonsense"), "nonsense"),
    ],
)
def test_misuse(given: Scenario, match: str) -> None:
    with pytest.raises(Misuse, match=match):
        simulate_timing(given)


@pytest.mark.parametrize("strategy", ["async", "ssp:3"])
def test_what_takes_long_is_not_sent_again_and_again(strategy: str) -> None:
    """A dense update that its link carries for longer than the first deadline: each copy would delay all others."""
    links = Links(Link(88e6, 1e-4))
    scenario = Scenario(
        strategy=strategy, codec="dense", parameters=25_000_000, links=links, steps=4, speeds=Speeds(step_s=0.02)
    )
    found = simulate_timing(scenario)
    for each in found.workers.values():
        assert each.bytes_sent <= 1.05 * 4 * 3 * 100e6, "more than every update once to every neighbour"
