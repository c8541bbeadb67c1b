"""What a job takes along is found by reading: the modules beside the script that it imports, and the packages."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest

from taut.cli.packing.modules import local_files, requirements
from taut.errors import Misuse

FILES = {
    "train.py": "import os, single\nfrom package.inner import deep\nimport numpy as np\nimport taut\nimport not_here\n",
    "single.py": "def later():\n    from other import thing\n",
    "other.py": "",
    "unused.py": "import torch",
    "package/__init__.py": "",
    "package/inner/__init__.py": "from . import beside\nfrom ..sibling import *\n",
    "package/inner/deep.py": "import msgspec.json\n",
    "package/inner/beside.py": "",
    "package/sibling.py": "from .. import far\n",
    "package/unused.py": "",
    "data/words.txt": "x",
    "data/__pycache__/a.pyc": "x",
}
FOUND = {"train.py", "single.py", "other.py", "package/__init__.py", "package/inner/__init__.py"}
FOUND |= {"package/inner/deep.py", "package/inner/beside.py", "package/sibling.py"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_modules_that_are_imported_are_found(folder: Path) -> None:
    found = local_files(folder / "train.py")
    assert set(found) == FOUND
    versions = {name: metadata.version(name) for name in ("msgspec", "numpy")}
    assert requirements(found.values(), found) == versions, "neither the standard library nor taut nor what is not there"


def test_more_can_be_included(folder: Path) -> None:
    found = local_files(folder / "train.py", [folder / "data", folder / "unused.py"])
    assert set(found) == FOUND | {"data/words.txt", "unused.py"}
    assert "torch" in requirements(found.values(), found)
    with pytest.raises(Misuse, match="a file or a folder that exists"):
        local_files(folder / "train.py", [folder / "nothing"])
    with pytest.raises(Misuse, match="a file in"):
        local_files(folder / "package" / "sibling.py", [folder / "data"])
    (folder / "data" / "link").symlink_to("/etc/hostname")
    with pytest.raises(Misuse, match="link"):
        local_files(folder / "train.py", [folder / "data"])


def test_imports_do_not_lead_out_of_the_folder(folder: Path) -> None:
    (folder / "package" / "script.py").write_text("from ..... import single\nfrom .. import other\nimport sibling\n")
    assert set(local_files(folder / "package" / "script.py")) == {"script.py", "sibling.py"}


def test_what_is_no_python_is_named(folder: Path) -> None:
    (folder / "single.py").write_text("def later(:\n")
    with pytest.raises(Misuse, match=r"single\.py, line 1"):
        local_files(folder / "train.py")
