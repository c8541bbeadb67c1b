"""Makes an environment for each peer of ``bench/race.py``: ``.venv-peers/NAME``, which shares the torch of ``.venv``.

    python bench/peers/environments.py [NAME ...] [--list]

Nothing is vendored: every peer comes from the package index, at the version named here. An environment that is there
already is left as it is. A peer that cannot be installed is named with the reason, and the others are made.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENTS = ROOT / ".venv-peers"
WANTED = {
    "hivemind": ["hivemind==1.1.12"],
    "torchft": ["torchft==0.2.0"],
    "flower": ["flwr==1.41.0"],
    "deepspeed": ["deepspeed==0.19.8"],  # later: a wheel from a build that sees torch
    "horovod": ["horovod==0.28.1"],  # later: built from its source
}
BUILD = ["setuptools<81", "wheel", "packaging", "ninja"]
# torch's headers need C++17, and Horovod's build files say 14; CMake no longer takes policies as old as gloo's.
MENDED = {"CMakeLists.txt": 1, "horovod/torch/CMakeLists.txt": 1}
HOROVOD = {
    "HOROVOD_WITH_PYTORCH": "1",
    "HOROVOD_WITH_GLOO": "1",
    "HOROVOD_WITHOUT_MPI": "1",
    "HOROVOD_WITHOUT_TENSORFLOW": "1",
    "HOROVOD_WITHOUT_MXNET": "1",
    "CMAKE_POLICY_VERSION_MINIMUM": "3.5",
}
DEEPSPEED = {"DS_BUILD_OPS": "0", "DS_ACCELERATOR": "cpu"}


def python(name: str) -> Path:
    """The interpreter of a peer's environment; this one for what torch itself brings."""
    return ENVIRONMENTS / name / "bin" / "python" if name in WANTED else Path(sys.executable)


def installed(name: str) -> bool:
    return name not in WANTED or (ENVIRONMENTS / name / ".made").exists()


def pip(name: str, *words: str, extra: dict[str, str] | None = None) -> None:
    command = [str(python(name)), "-m", "pip", "--disable-pip-version-check", "--quiet", *words]
    done = subprocess.run(command, env=os.environ | (extra or {}), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}: exit code {done.returncode}\n{(done.stdout + done.stderr)[-3000:]}")


def made(name: str) -> None:
    """Make the environment, with the packages of the main one behind its own."""
    folder = ENVIRONMENTS / name
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    shared = sysconfig.get_path("purelib")
    own = sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)})
    Path(own, "shared.pth").write_text(f"import site; site.addsitedir({shared!r})\n")
    if name == "horovod":
        with tempfile.TemporaryDirectory(prefix="taut-peer-") as sources:
            build_horovod(Path(sources))
    elif name == "deepspeed":
        pip(name, "install", *BUILD)
        pip(name, "install", "--no-build-isolation", *WANTED[name], extra=DEEPSPEED)
    else:
        pip(name, "install", *WANTED[name])
    (folder / ".made").touch()


def build_horovod(folder: Path) -> None:
    pip("horovod", "install", *BUILD, "cmake<4")
    pip("horovod", "download", "--no-deps", "--no-build-isolation", "-d", str(folder), *WANTED["horovod"])
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as source:
        source.extractall(folder, filter="data")
    (source_folder,) = (path for path in folder.iterdir() if path.is_dir())
    for path in MENDED:
        text = (source_folder / path).read_text()
        (source_folder / path).write_text(text.replace("CMAKE_CXX_STANDARD 14", "CMAKE_CXX_STANDARD 17"))
    tools = {"PATH": f"{python('horovod').parent}:{os.environ['PATH']}"}
    pip("horovod", "install", "--no-build-isolation", str(source_folder), extra=HOROVOD | tools)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: all ({', '.join(WANTED)})")
    parser.add_argument("--list", action="store_true", help="say which are there")
    args = parser.parse_args()
    unknown = set(args.names) - set(WANTED)
    if unknown:
        parser.error(
            f"no peer has an environment of that name: {', '.join(sorted(unknown))}; there are {', '.join(WANTED)}"
        )
    failed = []
    for name in args.names or WANTED:
        if not args.list and not installed(name):
            try:
                made(name)
            except SystemExit as error:
                print(f"{name}: {error}", file=sys.stderr)
                failed.append(name)
        print(f"{name}: {'there' if installed(name) else 'not there'} ({', '.join(WANTED[name])})")
    if failed:
        sys.exit(f"not made: {', '.join(failed)}")


if __name__ == "__main__":
    main()
