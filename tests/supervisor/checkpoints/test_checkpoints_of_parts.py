"""Checkpoints of islands: a kill at any instant leaves one that the runs of all parts have."""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from taut.core.checkpoint_names import DIGEST_NBYTES, FOLDER, part_folder
from taut.supervisor.checkpoints.folder import Launch, PartFile, drop_newer, last_good, numbers, write_manifest

PARTS = 3


def write(root: Path, part: int, number: int, keep: int, ranks: tuple[int, ...] = (0,)) -> None:
    """Write a part's checkpoint, as its run does."""
    folder = part_folder(root, part) / FOLDER
    (folder / str(number)).mkdir(parents=True)
    files = {}
    for rank in ranks:
        data = f"{part} {number} {rank}".encode()
        (folder / str(number) / f"worker-{rank}.safetensors").write_bytes(data)
        digest = partial(hashlib.blake2b, digest_size=DIGEST_NBYTES)(data).hexdigest()
        files[f"worker-{rank}.safetensors"] = msgspec.to_builtins(PartFile(rank, len(data), digest))
    settings = {"island": PARTS} | ({"part": part} if part else {})
    fixed = {"run": "a", "phase": 0, "steps": number, "passes": {}, "undone": [], "launch": msgspec.to_builtins(Launch())}
    write_manifest(folder, {"number": number, "settings": settings, "files": files, **fixed}, keep)


@given(st.lists(st.integers(0, PARTS - 1), max_size=25), st.integers(1, 3))
def test_what_all_parts_have_is_never_removed(writers: list[int], keep: int) -> None:
    """Each entry is a part whose run completes its next checkpoint; a kill may come after any of them."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        root, done = Path(folder), [0] * PARTS
        for part in writers:
            done[part] += 1
            write(root, part, done[part], keep)
            found = last_good(root / FOLDER) if min(done) else None
            assert found is None if not min(done) else found is not None and found.manifest.number == min(done)
        if found := last_good(root / FOLDER) if min(done) else None:
            drop_newer(found)
            for part in range(PARTS):
                own = numbers(part_folder(root, part) / FOLDER)
                assert own[-1] == min(done) and len(own) <= keep + max(done)


def test_parts_of_different_islands_are_not_one_checkpoint(tmp_path: Path) -> None:
    for part in range(PARTS):
        write(tmp_path, part, 1, 3, (0, 1))
        write(tmp_path, part, 2, 3, (0, 1) if part else (0,))
    found = last_good(tmp_path / FOLDER)
    assert found is not None and found.manifest.number == 1
    assert "not of the same islands" in found.damaged[0]
