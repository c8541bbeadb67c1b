"""The example's notebook is executed in a real kernel, and its output looked at."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[3] / "examples" / "notebook.ipynb"
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(300)]  # the kernel's packages have warnings


def test_the_notebook_runs(tmp_path: Path) -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(
        notebook, timeout=240, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    launched, tables, figure = [cell["outputs"] for cell in notebook["cells"] if cell["cell_type"] == "code"][1:]
    printed = "".join(output["text"] for output in launched if output["output_type"] == "stream")
    assert "training" in printed and "replicas: identical" in printed, "the run's progress comes into the cell"
    told = re.search(r"accuracy (\d\.\d\d), state finished", printed)
    assert told is not None and float(told[1]) > 0.8
    assert "samples" in tables[0]["data"]["text/html"]
    assert base64.b64decode(figure[-1]["data"]["image/png"]).startswith(b"\x89PNG")
    assert (tmp_path / "taut-runs" / "from-a-notebook" / "model.safetensors").is_file()
