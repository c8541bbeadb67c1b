"""The commands of a page in docs/, for tests that run them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def page_commands(page: str, heading: str) -> list[list[str]]:
    """Return the words of each command in the ``sh`` blocks below ``heading``, in their order."""
    part = re.split(r"^## ", (DOCS / page).read_text(encoding="utf-8"), flags=re.MULTILINE)
    (text,) = (each for each in part if each.startswith(f"{heading}\n"))
    lines = "".join(re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)).splitlines()
    return [shlex.split(line, comments=True) for line in lines]
