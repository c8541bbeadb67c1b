"""Addresses: what a user may type, what others are told, and what is said when it cannot work."""

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.errors import Misuse
from taut.transport.endpoint import is_tcp_address, own_address, split
from taut.transport.keys import RunKeys, Token, WorkerKeys
from taut.transport.zmq.server import SupervisorSocket
from taut.transport.zmq.transport import ZmqTransport


def address(**options) -> str:
    transport = ZmqTransport(WorkerKeys.generate(), **options)
    transport.close()
    return transport.address


def test_a_free_port_is_found_and_told() -> None:
    assert address().startswith("tcp://127.0.0.1:")
    assert split(address(), "address")[1] > 0
    assert address() != ""


def test_all_interfaces_are_told_as_one_address() -> None:
    found = address(bind="0.0.0.0")
    assert found.startswith("tcp://")
    assert "0.0.0.0" not in found
    assert is_tcp_address(found)
    # Towards a supervisor on this machine, the address is the one that is used to reach it.
    token = Token.parse(RunKeys.generate().token)
    assert address(bind="0.0.0.0", supervisor=("tcp://127.0.0.1:9", token)).startswith("tcp://127.0.0.1:")
    assert own_address("tcp://127.0.0.1:9") == "127.0.0.1"


def test_the_user_knows_better() -> None:
    assert address(advertise="train.example.org:7000") == "tcp://train.example.org:7000"
    assert address(advertise="10.1.2.3").startswith("tcp://10.1.2.3:")
    assert address(bind="localhost").startswith(("tcp://127.0.0.1:", "tcp://[::1]:"))


def test_a_busy_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(Misuse, match=f"port {port}.*free.*another"):
            ZmqTransport(WorkerKeys.generate(), bind=f"127.0.0.1:{port}")
        with pytest.raises(Misuse, match=f"port {port}"):
            SupervisorSocket(RunKeys.generate(), port=port)


@pytest.mark.parametrize(
    "options",
    [
        {"bind": ""},
        {"bind": "127.0.0.1:x"},
        {"bind": "127.0.0.1:70000"},
        {"bind": "a host"},
        {"bind": "203.0.113.77"},  # not of this host
        {"bind": "no-such-host.invalid"},
        {"advertise": "what ever"},
        {"supervisor": ("nowhere", Token.parse(RunKeys.generate().token))},
        {"supervisor": ("tcp://host", Token.parse(RunKeys.generate().token))},
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_open(options) -> None:
    with pytest.raises(Misuse):
        ZmqTransport(WorkerKeys.generate(), **options)


@given(st.text(max_size=40))
def test_any_text_is_an_address_or_not(text: str) -> None:
    for candidate in (text, "tcp://" + text, f"tcp://{text}:80"):
        if is_tcp_address(candidate):
            host, port = split(candidate, "address")
            assert host
            assert 0 < port <= 65535


def test_ports_of_the_supervisor() -> None:
    with pytest.raises(Misuse, match="65535"):
        SupervisorSocket(RunKeys.generate(), port=70000)
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    server = SupervisorSocket(RunKeys.generate(), port=port)
    server.close()
    server.close()
    server.wake()
    assert server.address == f"tcp://127.0.0.1:{port}"
