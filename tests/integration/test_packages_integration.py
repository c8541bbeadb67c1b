"""The sdist and the wheel are complete: built from a copy of the tree, installed in a clean environment, and used there.

The dependencies are not installed again: the clean environment sees those of this one. What is tested is what taut itself
brings along.
"""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
import tarfile
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path
from shutil import copytree, ignore_patterns

import pytest
from readme_renderer import markdown

import taut

ROOT = Path(__file__).resolve().parents[2]
NOT_OURS = (
    ".git",
    ".venv*",
    ".*_cache",
    ".hypothesis",
    "__pycache__",
    "*.egg-info",
    "build",
    "dist",
    "taut-runs",
    ".carry",
)
SCRIPT = """
import torch
import taut

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with taut.join(model, optimizer) as worker:
    for x, y in worker.batches((torch.ones(64, 4), torch.ones(64, 1)), batch_size=8, epochs=2):
        worker.step(torch.nn.functional.mse_loss(model(x), y))
print(worker.steps, taut.__file__)
"""


def ran(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the sdist, and the wheel that was built from the sdist."""
    folder = tmp_path_factory.mktemp("packages")
    copytree(ROOT, folder / "tree", ignore=ignore_patterns(*NOT_OURS))
    ran(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder / "dist", folder / "tree", cwd=folder)
    return folder / "dist"


@pytest.fixture(scope="module")
def wheel(packages: Path) -> Path:
    (wheel,) = packages.glob("taut-*.whl")
    return wheel


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


def files(*folders: str) -> set[str]:
    """Return the paths of all files that belong to the project below these folders of the tree."""
    every = (path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file())
    relative = (path.relative_to(ROOT) for path in every)
    return {str(path) for path in relative if not {"__pycache__", ".hypothesis", "taut.egg-info"} & {*path.parts}}


def test_the_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if name.startswith("taut/")}
    assert inside == {name.removeprefix("src/") for name in files("src/taut")}
    assert {"taut/py.typed", "taut/dashboard/page/index.html"} <= inside


def test_the_sdist_has_what_make_test_needs(packages: Path) -> None:
    (sdist,) = packages.glob("taut-*.tar.gz")
    with tarfile.open(sdist) as archive:
        inside = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
    beside = {"Makefile", "constraints.txt", "LICENSE", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "mkdocs.yml"}
    assert files("src/taut", "tests", "docs", "examples", "bench", ".ci") | beside <= inside


@pytest.mark.long
def test_the_wheel_works_in_a_clean_environment(wheel: Path, tmp_path: Path) -> None:
    clean = tmp_path / "clean"
    ran(sys.executable, "-m", "venv", "--without-pip", clean, cwd=tmp_path)
    python = clean / "bin" / "python"
    ran(
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--no-deps",
        "--no-index",
        "--no-compile",
        wheel,
        cwd=tmp_path,
    )
    (site,) = (clean / "lib").glob("python*/site-packages")
    (site / "dependencies.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
    (tmp_path / "train.py").write_text(SCRIPT)

    for command in ([clean / "bin" / "taut"], [python, "-m", "taut"]):
        assert ran(*command, "--version", cwd=tmp_path).split() == ["taut", taut.__version__]
    steps, home = ran(python, "train.py", cwd=tmp_path).split()
    assert steps == "16"
    assert Path(home).is_relative_to(site)


def test_a_package_index_can_show_the_description(wheel: Path) -> None:
    """A package index resolves no relative link or picture, so there must be none."""
    described = metadata(wheel)
    html = markdown.render(described.get_payload(), variant="GFM")
    assert described["Description-Content-Type"] == "text/markdown"
    assert html is not None and "taut trains one PyTorch model" in html
    assert re.findall(r'(?:src|href)="(?!https:|#)[^"]*"', html) == []


def test_the_description_links_to_a_public_address_where_there_is_one() -> None:
    described = runpy.run_path(str(ROOT / "setup.py"))["long_description"]
    readme = "![picture](a.svg) [page](docs/b.md#c) [site](https://example.org)"
    assert described(readme, None) == " page [site](https://example.org)"
    assert described(readme, "https://taut.example") == (
        "![picture](https://taut.example/raw/HEAD/a.svg) [page](https://taut.example/blob/HEAD/docs/b.md#c) [site](https://example.org)"
    )


def test_the_citation_and_the_badges_say_what_the_metadata_says(wheel: Path) -> None:
    told = metadata(wheel)
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {told['Version']}\n" in citation
    assert f"\nlicense: {told['License-Expression']}\n" in citation
    badges = {
        kind: (ROOT / "docs" / "img" / f"badge-{kind}.svg").read_text(encoding="utf-8") for kind in ("python", "license")
    }
    assert f">{told['Requires-Python'].removeprefix('>=')}+<" in badges["python"]
    assert f">{told['License-Expression']}<" in badges["license"]
