"""``taut data get``, with a server on this machine: what arrives whole and right is kept, and nothing else."""

from __future__ import annotations

import hashlib
import io
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from typer.testing import CliRunner

from taut.cli.main import app
from taut.data import catalogue
from taut.data.catalogue import CATALOGUE, DataFile, DataSet
from taut.data.download import DownloadFailed, get

CONTENT = {"a.gz": b"a" * 3000, "b.gz": b"b" * 20}


class Server(ThreadingHTTPServer):
    """Serves ``files``. ``how``: right, cut (the connection ends early), short, long or missing."""

    how, files = "right", CONTENT
    asked: list[str]


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        data, how = self.server.files.get(self.path[1:]), self.server.how
        if data is None or how == "missing":
            self.send_error(404)
            return
        sent = {"short": data[:-1], "long": data + b"x", "cut": data[:-5]}.get(how, data)
        self.send_response(200)
        if how != "short":  # it does not say how much it sends
            self.send_header("Content-Length", str(len(data) + (how == "long")))
        self.end_headers()
        self.wfile.write(sent)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as made:
        made.asked = []
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def address(server: Server) -> str:
    return f"http://127.0.0.1:{server.server_port}"


def described(server: Server, archive: bool = False) -> DataSet:
    files = [
        DataFile(name, len(data), f"sha256:{hashlib.sha256(data).hexdigest()}", (f"{address(server)}/{name}",))
        for name, data in server.files.items()
    ]
    return DataSet("letters", "letters", tuple(files), archive)


def fetch(server: Server, folder: Path, mirror: str = "") -> int:
    return get(described(server), folder, mirror, len)


def test_files_are_fetched_once(server: Server, tmp_path: Path) -> None:
    assert fetch(server, tmp_path / "new") == 3020
    assert {path.name: path.read_bytes() for path in (tmp_path / "new").iterdir()} == CONTENT
    assert fetch(server, tmp_path / "new") == 0 and len(server.asked) == 2
    (tmp_path / "new" / "b.gz").write_bytes(b"c" * 20)
    assert fetch(server, tmp_path / "new") == 20, "another content of the same length"


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("cut", "was cut off after 2,995 of 3,000 bytes"),
        ("short", "was cut off after 2,999 of 3,000 bytes"),
        ("long", r"sends more than the 3\.0 kB of a\.gz"),
        ("missing", "answers 404 Not Found"),
    ],
)
def test_what_is_not_whole_is_not_kept(server: Server, tmp_path: Path, how: str, said: str) -> None:
    server.how = how
    with pytest.raises(DownloadFailed, match=said) as failed:
        fetch(server, tmp_path)
    assert "taut data get letters" in str(failed.value) and str(tmp_path) in str(failed.value)
    assert not list(tmp_path.iterdir())


def test_another_content_is_not_kept(server: Server, tmp_path: Path) -> None:
    wanted = described(server)
    server.files = {**CONTENT, "b.gz": b"B" * 20}
    with pytest.raises(DownloadFailed, match=r"another checksum \(sha256\) than b\.gz: not kept"):
        get(wanted, tmp_path, "", len)
    assert [path.name for path in tmp_path.iterdir()] == ["a.gz"]


def test_the_second_source_and_a_mirror_are_asked(server: Server, tmp_path: Path) -> None:
    dead = f"http://127.0.0.1:{closed_port()}"
    files = tuple(
        DataFile(each.name, each.nbytes, each.checksum, (f"{dead}/{each.name}", *each.sources))
        for each in described(server).files
    )
    assert get(DataSet("letters", "letters", files), tmp_path / "second", "", len) == 3020
    alone = tuple(DataFile(each.name, each.nbytes, each.checksum, (f"{dead}/x",)) for each in files)
    assert get(DataSet("letters", "letters", alone), tmp_path / "mirror", address(server) + "/", len) == 3020
    with pytest.raises(DownloadFailed, match="cannot be reached"):
        get(DataSet("letters", "letters", alone), tmp_path / "none", "", len)
    with pytest.raises(DownloadFailed, match="no address of a web server"):
        get(DataSet("letters", "letters", alone), tmp_path / "none", "file:///etc", len)


def closed_port() -> int:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as unused:
        return unused.server_port


def test_archives_are_unpacked_inside_their_folder(server: Server, tmp_path: Path) -> None:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for name, kind in (("yes/1.wav", tarfile.REGTYPE), ("link", tarfile.SYMTYPE)):
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.size = kind, "/etc/passwd", 4 * (kind == tarfile.REGTYPE)
            archive.addfile(member, io.BytesIO(b"RIFF"))
    server.files = {"words.tar.gz": made.getvalue()}
    get(described(server, archive=True), tmp_path, "", len)
    assert (tmp_path / "yes" / "1.wav").read_bytes() == b"RIFF" and not (tmp_path / "link").exists()

    with tarfile.open(fileobj=(made := io.BytesIO()), mode="w:gz") as archive:
        archive.addfile(tarfile.TarInfo("../outside"), io.BytesIO())
    server.files = {"words.tar.gz": made.getvalue()}
    with pytest.raises(DownloadFailed, match="outside"):
        get(described(server, archive=True), tmp_path / "in", "", len)
    assert not (tmp_path / "outside").exists()


def test_the_command(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(catalogue.CATALOGUE, "letters", described(server))
    done = CliRunner().invoke(app, ["data", "get", "letters"])
    assert done.exit_code == 0 and "2 files, 3.0 kB, checksums right; 3.0 kB fetched" in done.stderr
    assert (tmp_path / "data" / "letters" / "a.gz").exists()
    assert '"fetched_nbytes": 0' in CliRunner().invoke(app, ["data", "get", "letters", "--json"]).stdout
    unknown = CliRunner().invoke(app, ["data", "get", "leters"])
    assert unknown.exception is not None and "did you mean 'letters'" in str(unknown.exception)
    assert all(name in CliRunner().invoke(app, ["data", "list"]).stdout for name in CATALOGUE)


def test_the_catalogue_is_complete() -> None:
    for each in CATALOGUE.values():
        assert each.files and all(file.sources and file.nbytes > 0 for file in each.files)
        for file in each.files:
            algorithm, _, digest = file.checksum.partition(":")
            assert len(digest) == {"md5": 32, "sha256": 64}[algorithm] and int(digest, 16)
            assert all(source.endswith("/" + file.name) for source in file.sources)
