"""What ``import taut`` offers, before any of it is loaded."""

from __future__ import annotations

import subprocess
import sys

import taut


def test_every_public_name_is_listed_and_there() -> None:
    assert dir(taut) == sorted(taut.__all__) == sorted({"__version__", *taut._HOMES, *taut._PARTS})
    for name in dir(taut):
        assert getattr(taut, name) is not None


def test_listing_the_names_loads_nothing_heavy() -> None:
    code = "import sys, taut; dir(taut); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
