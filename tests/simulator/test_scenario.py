"""A scenario as JSON is the scenario, and one that cannot be is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.errors import Misuse
from taut.simulator.faults import Fail, Join, Pause
from taut.simulator.models.costs import CodecCost, Costs
from taut.simulator.models.links import Link, Links, Shared
from taut.simulator.models.speeds import Speeds
from taut.simulator.scenario import Scenario

RANK = st.integers(0, 70)
SECONDS = st.floats(0.0, 1e5)
LINK = st.builds(
    Link,
    st.one_of(st.floats(1.0, 1e12), st.just(float("inf"))),
    SECONDS,
    SECONDS,
    st.floats(0.0, 0.49),
    st.integers(0, 10**6),
    st.sampled_from(["cubic", "bbr"]),
)
PAIR = st.tuples(RANK, RANK).filter(lambda pair: pair[0] != pair[1])
SCENARIO = st.builds(
    Scenario,
    workers=st.integers(1, 65_536),
    strategy=st.text(max_size=5),
    codec=st.sampled_from(["", "dense"]),
    seed=st.integers(0, 2**62),
    steps=st.none() | st.integers(1, 10**6),
    epochs=st.none() | st.integers(1, 10**6),
    args=st.lists(st.text(max_size=3), max_size=3).map(tuple),
    links=st.builds(
        Links,
        LINK,
        st.dictionaries(RANK, LINK, max_size=3),
        st.dictionaries(PAIR, LINK, max_size=3),
        st.lists(st.builds(Shared, st.frozensets(RANK), st.floats(1.0, 1e12)), max_size=2).map(tuple),
        st.integers(1, 8),
    ),
    speeds=st.builds(
        Speeds,
        st.floats(1e-6, 1e3),
        st.sampled_from(["constant", "lognormal:0.3"]),
        st.floats(0.0, 1.0),
        st.dictionaries(RANK, st.floats(0.1, 10.0), max_size=3),
    ),
    faults=st.lists(
        st.one_of(
            st.builds(Fail, RANK, SECONDS), st.builds(Pause, RANK, SECONDS, SECONDS), st.builds(Join, RANK, SECONDS)
        ),
        max_size=4,
    ).map(tuple),
    costs=st.just(Costs()) | st.builds(Costs, st.just({"dense": CodecCost(1e-9, 2e-9, 32.0, 0.0)}), st.floats(0.0, 1.0)),
)


@given(SCENARIO)
def test_there_and_back_through_json(scenario: Scenario) -> None:
    text = json.dumps(scenario.to_record(), allow_nan=False)
    back = Scenario.from_record(json.loads(text))
    assert back == scenario
    assert json.dumps(back.to_record()) == text


def test_what_is_left_out_has_its_default() -> None:
    assert Scenario.from_record({}) == Scenario()
    assert Scenario.from_record({"links": {"default": {"latency_s": 0.1}}}).links == Links(Link(latency_s=0.1))


@pytest.mark.parametrize(
    ("record", "says"),
    [
        ([], "a table"),
        ({"worker": 4}, "did you mean 'workers'"),
        ({"workers": "four"}, "workers = 'four'"),
        ({"workers": True}, "workers = True"),
        ({"args": "abc"}, "args"),
        ({"links": {"default": {"bits_per_s": "fast"}}}, "null for no limit"),
        ({"links": {"default": {"bits_per_s": 0}}}, "at least 1"),
        ({"links": {"of_worker": {"x": {}}}}, "a worker's rank"),
        ({"links": {"of_pair": {"0": {}}}}, "0-1"),
        ({"links": {"shared": [{"members": [0], "bits_per_s": -1.0}]}}, "shared"),
        ({"speeds": {"draw": "normal"}}, "lognormal"),
        ({"speeds": {"stragglers": {"0": "slow"}}}, "times slower"),
        ({"faults": {"kind": "fail"}}, "a list"),
        ({"faults": [{"kind": "fial", "rank": 0, "at_s": 1.0}]}, "did you mean 'fail'"),
        ({"faults": [{"kind": "fail", "rank": 0}]}, "without at_s"),
        ({"faults": [{"kind": "fail", "rank": "0", "at_s": 1.0}]}, "rank = '0'"),
        ({"costs": {"message_s": -1}}, "from 0 up"),
    ],
)
def test_what_cannot_be_is_refused(record: Any, says: str) -> None:
    with pytest.raises(Misuse, match=says):
        Scenario.from_record(record)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"workers": 0}, "--workers 0"),
        ({"workers": 70_000}, "at most 65536"),
        ({"steps": 0}, "--steps 0"),
        ({"epochs": 0}, "--epochs 0"),
        ({"seed": -1}, "--seed -1"),
        ({"parameters": 0}, "--parameters 0"),
        ({"speeds": Speeds(stragglers={4: 2.0})}, "of worker 4"),
        ({"links": Links(of_worker={4: Link()})}, "of worker 4"),
        ({"links": Links(of_pair={(0, 4): Link()})}, "of worker 4"),
        ({"links": Links(shared=(Shared(frozenset({4}), 1e9),))}, "of worker 4"),
        ({"faults": (Fail(4, 1.0),)}, "the fail of worker 4"),
        ({"faults": (Pause(9, 1.0, 1.0),)}, "the pause of worker 9"),
    ],
)
def test_workers_that_there_are_not(changes: dict[str, Any], says: str) -> None:
    scenario = replace(Scenario(workers=4), **changes)
    with pytest.raises(Misuse, match=says):
        scenario.check()


def test_joiners_count() -> None:
    replace(Scenario(workers=4), faults=(Join(2, 1.0), Fail(5, 3.0))).check()
    with pytest.raises(Misuse, match="there are 6"):
        replace(Scenario(workers=4), faults=(Join(2, 1.0), Fail(6, 3.0))).check()
