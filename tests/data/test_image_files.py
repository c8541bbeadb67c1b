"""Data sets from files: what was written comes back, and files that are no data sets are refused by name."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from data_sets import idx, write_cifar, write_mnist
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from taut.data.image_files import load, read_idx
from taut.errors import Misuse


@given(hnp.arrays(np.uint8, hnp.array_shapes(max_dims=4, max_side=5)), st.booleans())
def test_an_array_in_idx_form_comes_back(
    tmp_path_factory: pytest.TempPathFactory, array: np.ndarray, packed: bool
) -> None:
    path = tmp_path_factory.getbasetemp() / f"array{'.gz' * packed}"
    path.write_bytes(gzip.compress(idx(array)) if packed else idx(array))
    found = read_idx(path)
    assert found.dtype == np.uint8 and np.array_equal(found, array) and found.flags.writeable


@given(st.binary(max_size=40), st.integers(0, 19), st.booleans())
def test_bytes_that_are_no_idx_file_are_refused(
    tmp_path_factory: pytest.TempPathFactory, noise: bytes, at: int, packed: bool
) -> None:
    whole = idx(np.arange(12).reshape(3, 4))
    for data in (noise, whole[:at], whole + b"x", whole[:4] + b"\xff" * 8, gzip.compress(whole)[:-9]):
        path = tmp_path_factory.getbasetemp() / f"broken{'.gz' * (packed or data[:2] == bytes((31, 139)))}"
        path.write_bytes(data)
        with pytest.raises(Misuse, match="broken"):
            read_idx(path)


def test_mnist_and_cifar_have_images_and_labels(tmp_path: Path) -> None:
    write_mnist(tmp_path, 30, 10)
    (x, y), (x_test, y_test) = load(tmp_path)
    assert (x.shape, y.shape, x_test.shape, y_test.shape) == ((30, 28, 28), (30,), (10, 28, 28), (10,))
    write_cifar(tmp_path, 4)
    (x, y), (x_test, y_test) = load(tmp_path)
    assert (x.shape, y.shape, x_test.shape, y_test.shape) == ((20, 3, 32, 32), (20,), (4, 3, 32, 32), (4,))
    assert y.max() < 10 < x.max()


def test_folders_that_are_no_data_sets_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="taut data get mnist"):
        load(tmp_path)
    write_cifar(tmp_path, 2, data_batch_3=b"too short")
    with pytest.raises(Misuse, match=r"data_batch_3\.bin of 9 bytes"):
        load(tmp_path)
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(b"nothing")
    with pytest.raises(Misuse, match="a whole tar archive"):
        load(tmp_path)
