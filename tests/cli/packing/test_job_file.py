"""A job file is read back as it was written, or refused: whatever bytes come, no other file and no other content."""

from __future__ import annotations

import io
import warnings
import zipfile
from pathlib import Path, PurePosixPath

import pytest
from examples import some
from hypothesis import given, settings
from hypothesis import strategies as st
from job_files import CONTENTS, job, manifest_of

from taut.cli.packing.job_file import FILES, MANIFEST, read_job
from taut.cli.packing.manifest import JobFile, check_path
from taut.errors import Misuse

NAMES = st.from_regex(r"[a-z][a-z_]{0,5}(/[a-z][a-z_]{0,5}){0,2}\.(py|txt)", fullmatch=True)


@settings(deadline=None, max_examples=some(50))
@given(
    st.dictionaries(NAMES, st.binary(max_size=200), min_size=1, max_size=5), st.lists(st.text(max_size=20), max_size=3)
)
def test_a_job_comes_back(tmp_path_factory: pytest.TempPathFactory, contents: dict[str, bytes], args: list[str]) -> None:
    path = tmp_path_factory.getbasetemp() / "back.taut"
    try:
        found = read_job(job(path, contents, args=args))
    except Misuse:
        folders = {parent.as_posix() for name in contents for parent in PurePosixPath(name).parents}
        assert folders & set(contents), "a.py/b.txt beside a.py"
        return
    assert (found.contents, found.manifest) == (contents, manifest_of(contents, args=args)) and found.signature == b""
    first = path.read_bytes()
    assert job(path, contents, args=args).read_bytes() == first, "the same files give the same bytes"


@settings(deadline=None, max_examples=some(80))
@given(st.data())
def test_changed_bytes_are_refused_or_change_nothing(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = job(tmp_path_factory.getbasetemp() / "changed.taut")
    whole, before = path.read_bytes(), read_job(path)
    at = data.draw(st.integers(0, len(whole) - 1))
    kind = data.draw(st.sampled_from(["flip", "cut", "insert", "append"]))
    changed = {
        "flip": whole[:at] + bytes([whole[at] ^ data.draw(st.integers(1, 255))]) + whole[at + 1 :],
        "cut": whole[:at],
        "insert": whole[:at] + data.draw(st.binary(min_size=1, max_size=30)) + whole[at:],
        "append": whole + data.draw(st.binary(min_size=1, max_size=30)),
    }[kind]
    path.write_bytes(changed)
    try:
        after = read_job(path)
    except Misuse:
        return
    assert (after.encoded, after.contents) == (before.encoded, before.contents)


@settings(deadline=None, max_examples=some(100))
@given(st.text(max_size=30) | st.sampled_from(["..", "a/../b", "/etc/x", "C:x", "a\\b", "a//b", "a/", "a.", " ", "a\0b"]))
def test_no_path_leaves_the_folder(tmp_path_factory: pytest.TempPathFactory, path: str) -> None:
    folder = tmp_path_factory.getbasetemp() / "root" / "folder"
    try:
        check_path(path, "job.taut")
    except Misuse:
        return
    assert folder in (folder / path).resolve().parents
    assert not set('\\:*?"<>|\0\n') & set(path) and path == path.strip()


def test_paths_that_lead_out_are_refused() -> None:
    for path in (
        "",
        ".",
        "..",
        "../a",
        "a/../../b",
        "/a",
        "a//b",
        "a/",
        "./a",
        "a\\..\\b",
        "C:/a",
        "a\n",
        "a.",
        "x" * 101,
    ):
        with pytest.raises(Misuse):
            check_path(path, "job.taut")


def rewritten(path: Path, **entries: bytes | None) -> Path:
    """Write an archive anew with other entries, their names with dots for ``__``."""
    with zipfile.ZipFile(path) as archive:
        kept = {info.filename: archive.read(info) for info in archive.infolist()}
    kept |= {name.replace("__", "."): data for name, data in entries.items()}  # type: ignore[misc]
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in kept.items():
            if data is not None:
                archive.writestr(name, data)
    return path


def refused(path: Path, why: str) -> None:
    with pytest.raises(Misuse, match=why):
        read_job(path)


def test_other_archives_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "job.taut"
    refused(path, "there is no such file")
    path.write_bytes(b"print('hello')\n" * 10)
    refused(path, "damaged, or another kind of file")
    refused(rewritten(job(path), job__json=None), "it has no job.json")
    refused(rewritten(job(path), job__json=b"{}"), "its manifest: ")
    refused(rewritten(job(path), job__json=b'{"script": "\xff"}'), "its manifest: ")
    refused(rewritten(job(path), job__json=b"x" * (5 << 20)), "where at most 4,194,304 are due")
    refused(rewritten(job(path), more=b""), "its files are not those of its manifest")
    refused(rewritten(job(path), **{"files/train.py": b"import other_one.x\n"}), "another checksum")
    refused(rewritten(job(path), **{"files/train.py": b"short"}), "another checksum")
    refused(rewritten(job(path), job__sig=b"x" * 97), "where at most 96 are due")
    refused(job(path, script="other.py"), "it does not have its script")
    refused(job(path, settings={"ssh_command": "sh"}), "it sets ssh_command, which is not a job's to set")
    refused(job(path, files=[JobFile("../train.py", 1, "0" * 64)], script="../train.py"), "a file named '../train.py'")
    refused(job(path, {"A.py": b"", "a.py": b""}), "the same path")
    refused(job(path, {"a": b"", "a/b": b""}), "the same path")
    huge = [JobFile(f"{number}.bin", 1 << 30, "0" * 64) for number in range(2)]
    refused(job(path, files=huge, script="0.bin"), "more than 1,073,741,824 bytes")


def test_a_bomb_is_not_unpacked(tmp_path: Path) -> None:
    path = job(tmp_path / "job.taut")
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        archive.writestr(MANIFEST, b"\0" * (64 << 20))
    refused(path, "it has a file twice")
    rewritten(path, **{MANIFEST: manifest_of(CONTENTS).encoded()})
    with zipfile.ZipFile(made := io.BytesIO(), "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(MANIFEST, manifest_of(CONTENTS).encoded())
        for name, data in CONTENTS.items():
            archive.writestr(FILES + name, data if name != "words.txt" else b"\0" * (64 << 20))
    path.write_bytes(made.getvalue())
    refused(path, "67,108,864 bytes, where at most 300 are due")


def test_a_long_list_of_files_is_not_read(tmp_path: Path) -> None:
    path = job(tmp_path / "job.taut")
    whole = path.read_bytes()
    path.write_bytes(whole[:-10] + (1 << 30).to_bytes(4, "little") + whole[-6:])
    refused(path, "it lists too many files")
