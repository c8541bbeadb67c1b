"""The commands of docs/kubernetes.md run as they are written, with programs of the same names that look at the files and
names which they are given: there is no cluster here."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from page_commands import page_commands

ROOT = Path(__file__).parents[2]
LOOK = """#!/bin/sh
echo "$(basename "$0") $*" >> told
for word in "$@"; do
  case "$before$word" in
    -f*) test -n "$before" && { test -e "$word" || exit 9; } ;;
    --from-file=*) test -e "${word#--from-file=}" || exit 9 ;;
  esac
  case "$word" in -f) before=$word ;; *) before= ;; esac
done
"""


@pytest.mark.parametrize(("heading", "manifest"), [("An indexed Job", "job.yaml"), ("KubeRay", "rayjob.yaml")])
def test_the_commands_of_the_page(tmp_path: Path, heading: str, manifest: str) -> None:
    (programs := tmp_path / "bin").mkdir()
    for name, text in {
        "podman": LOOK,
        "kubectl": LOOK.replace("-f*)", "-f*.yaml)"),  # logs -f names no file
        "taut": f'#!/bin/sh\nexec {sys.executable} -m taut "$@"\n',
    }.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    (tmp_path / "train.py").write_text("")
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    for words in page_commands("kubernetes.md", heading):
        done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (words, done.stderr)
    told, text = (tmp_path / "told").read_text(), (ROOT / "deploy" / "kubernetes" / manifest).read_text()
    for kind in ("secret generic", "configmap"):
        for name in re.findall(rf"create {kind} (\S+)", told):
            assert f"name: {name}\n" in text or f"secretName: {name}\n" in text, "the manifest uses what is made here"
    for image in re.findall(r"-t (\S+)", told):
        assert f"image: {image}:latest" in text
    assert f"apply -f deploy/kubernetes/{manifest}" in told
