"""Which requests are heard: laws over all headers that a browser, or somebody who plays one, can send."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.dashboard.guard import LOOPBACK, Asked, Declined, check

HOSTS = LOOPBACK | {"trainer", "10.0.0.7"}
text = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=40)


def asked(path: str = "/api/run", method: str = "GET", at: str = "10.0.0.7", **headers: str) -> Asked:
    return Asked(method, path, at, {"host": "localhost:8080", **{k.replace("_", "-"): v for k, v in headers.items()}})


def status(one: Asked) -> int:
    """0 where it is heard."""
    try:
        check(one, HOSTS)
    except Declined as declined:
        return declined.status
    return 0


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:1", "LOCALHOST:80", "127.0.0.1:8080", "[::1]:8080", "trainer:65535", "10.0.0.7"]
)
def test_its_own_names_are_heard_at_any_port(host: str) -> None:
    assert status(asked(host=host)) == 0


@pytest.mark.parametrize(
    "host",
    [
        *("", "evil.example", "localhost.evil.example", "evil.example:8080", "127.0.0.1.evil.example", "localhost:"),
        *("a@localhost", "localhost:80:80", "localhost/", "localhost, evil.example", "127.0.0.2", "[::2]", "localhost."),
        *("[::1", "10.0.0.70"),
    ],
)
def test_other_names_are_not(host: str) -> None:
    """DNS rebinding: the attacker's name points here, and the browser sends that name."""
    for path, method in (("/", "GET"), ("/api/run", "GET"), ("/api/workers/0/drain", "POST")):
        one = asked(path, method, host=host, content_type="application/json", sec_fetch_site="same-origin")
        assert status(one) == 421


@given(text)
def test_no_name_but_its_own_is_heard(host: str) -> None:
    if status(asked(host=host)) == 0:
        assert host.lower().rpartition(":")[0] in HOSTS or host.lower() in HOSTS


@given(text)
def test_no_origin_but_its_own_is_heard(origin: str) -> None:
    ours = origin.lower() in ("http://localhost:8080", "https://localhost:8080")
    assert (status(asked(origin=origin)) == 0) == ours


@pytest.mark.parametrize(
    "origin", ["null", "http://evil.example", "http://localhost:9999", "http://localhost", "http://127.0.0.1:8080"]
)
def test_pages_of_other_origins_are_not_heard(origin: str) -> None:
    """Another port of the same host is another origin: another user's server may be there."""
    assert status(asked(origin=origin)) == 403
    assert status(asked("/api/workers/0/drain", "POST", origin=origin, content_type="application/json")) == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site", "rubbish", ""])
def test_requests_that_other_sites_caused_are_not_heard(site: str) -> None:
    assert status(asked(sec_fetch_site=site)) == 403
    assert status(asked("/api/stream", sec_fetch_site=site, sec_fetch_mode="navigate", sec_fetch_dest="document")) == 403
    assert status(asked("/api/workers/0/drain", "POST", sec_fetch_site=site, content_type="application/json")) == 403


def test_a_link_may_lead_to_the_page_but_not_into_a_frame() -> None:
    link = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate"}
    assert status(asked("/", **link, sec_fetch_dest="document")) == 0
    assert status(asked("/", **link, sec_fetch_dest="iframe")) == 403
    assert status(asked("/", "POST", **link, sec_fetch_dest="document", content_type="application/json")) == 403
    assert status(asked("/", sec_fetch_site="none", sec_fetch_mode="navigate", sec_fetch_dest="document")) == 0


@pytest.mark.parametrize(
    "kind", ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"]
)
def test_forms_cannot_change_anything(kind: str) -> None:
    """These types a page can send elsewhere without asking."""
    assert status(asked("/api/workers/0/drain", "POST", content_type=kind)) == 415
    assert status(asked("/api/workers/0/drain", "POST", content_type="application/json; charset=utf-8")) == 0


@pytest.mark.parametrize("method", ["OPTIONS", "PUT", "DELETE", "PATCH", "TRACE", "CONNECT", "get"])
def test_other_methods_are_not_heard(method: str) -> None:
    assert status(asked(method=method)) == 405


@pytest.mark.parametrize("name", [b"Host", b"ORIGIN", b"content-type", b"Authorization", b"Sec-Fetch-Site"])
def test_a_header_that_decides_is_there_once(name: bytes) -> None:
    with pytest.raises(Declined, match="twice"):
        Asked.parse("GET", "/", "127.0.0.1", [(name, b"a"), (name.lower(), b"b")])
    assert Asked.parse("GET", "/", "127.0.0.1", [(b"Cookie", b"a"), (b"Cookie", b"b")]).headers == {"cookie": "b"}


def test_the_address_that_the_connection_was_made_to_is_a_name() -> None:
    assert status(asked(host="192.0.2.4:80", at="192.0.2.4")) == 0
    assert status(asked(host="[2001:db8::4]:80", at="2001:db8::4")) == 0
    assert status(asked(host="192.0.2.5:80", at="192.0.2.4")) == 421
