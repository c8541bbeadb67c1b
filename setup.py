"""Make the long description for package indexes from README.md; everything else is in pyproject.toml.

An index resolves no relative link. With a ``Source`` address among ``[project.urls]`` relative links and pictures lead
there; without one (the project has no public address yet) pictures are left out and links become plain text.
"""

import re
import tomllib
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
RELATIVE = re.compile(r"(?P<picture>!?)\[(?P<text>[^\]]*)\]\((?![a-z]+:|#)(?P<path>[^)\s]+)\)")


def long_description(readme: str, source: str | None) -> str:
    """Return ``readme`` without relative links: they lead below ``source`` or, without it, become plain text."""

    def replaced(link: re.Match[str]) -> str:
        if source:
            kind = "raw" if link["picture"] else "blob"
            return f"{link['picture']}[{link['text']}]({source}/{kind}/HEAD/{link['path']})"
        return "" if link["picture"] else link["text"]

    return RELATIVE.sub(replaced, readme)


if __name__ == "__main__":
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    setup(
        long_description=long_description(
            (ROOT / "README.md").read_text(encoding="utf-8"), project.get("urls", {}).get("Source")
        ),
        long_description_content_type="text/markdown",
    )
