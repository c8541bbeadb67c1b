"""MkDocs hook: the site is the repository's Markdown, as it stands, and an API reference.

Pages outside docs/ (README, benchmarks and their results) are added. Relative links are written for the repository; they
are turned to where their targets are on the site. Source files that a page links to become pages with their text.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
OTHER_PAGES = ("README.md", "docs/index.md", "CONTRIBUTING.md", "CHANGELOG.md", "bench/README.md", "bench/results/*")
RENAMED = {"README.md": "index.md", "docs/index.md": "pages.md", "bench/README.md": "bench/index.md"}
SITE_FILES = (".md", ".svg", ".png")
_FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_EXAMPLE = re.compile(r"^>>> .*?(?=\n\s*\n|\Z)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)\s#]+)")
_FETCHED = re.compile(r"<(?:script|img|link|iframe)\b[^>]*\b(?:src|href)=\"?(?:https?:)?//[^>]*>")
_home: dict[str, str] = {}  # where a page of the site stands in the repository


def uri_of(path: str) -> str:
    """Return the site's name for a file of the repository."""
    uri = RENAMED.get(path) or path.removeprefix("docs/")
    return uri if uri.endswith(SITE_FILES) else f"source/{uri}.md"


def turned(text: str, home: str, uri: str) -> str:
    """Return the text of page ``uri``, which stands at ``home`` in the repository, with links that hold on the site."""

    def link(match: re.Match[str]) -> str:
        target = os.path.relpath(ROOT / Path(home).parent / match[1], ROOT)
        return os.path.relpath(uri_of(target), Path(uri).parent)

    parts = _FENCED.split(text)
    parts[0::2] = (_LINK.sub(link, prose) for prose in parts[0::2])
    parts[1::2] = (
        re.sub(r"^```(\w+) .*", r"```\1", fence) for fence in parts[1::2]
    )  # what follows the language is for the tests
    return "".join(parts)


def linked_sources(pages: list[str]) -> set[str]:
    """Return the files that these pages link to and that are no pages of the site themselves."""
    found = set()
    for page in pages:
        prose = "".join(_FENCED.split((ROOT / page).read_text(encoding="utf-8"))[0::2])
        found |= {os.path.relpath(ROOT / Path(page).parent / match[1], ROOT) for match in _LINK.finditer(prose)}
    return {path for path in found if not path.endswith(SITE_FILES) and (ROOT / path).is_file()}


def reference() -> Iterator[tuple[str, str]]:
    """Yield the name and text of each page of the API reference, from the names that the packages declare public."""
    import taut
    from taut import codecs, errors, optim, testing

    documented = {
        taut: [name for name in sorted(taut.__all__, key=str.swapcase) if not name.startswith("__")],  # functions first
        codecs: codecs.__all__,
        optim: optim.__all__,
        errors: [name for name, kind in vars(errors).items() if getattr(kind, "__module__", "") == errors.__name__],
        testing: list(testing._HOMES),
    }
    for package, names in documented.items():
        title = package.__name__
        sections = [f"# {title}\n"]
        for name in names:
            thing: Any = getattr(package, name)
            if hasattr(thing, "__qualname__"):
                path, heading = f"{thing.__module__}.{thing.__qualname__}", f"{title}.{name}"
                sections.append(f'::: {path}\n    options:\n      heading: "{heading}"\n      toc_label: "{name}"\n')
        yield f"api/{title.removeprefix('taut.')}.md", "\n".join(sections)


class FencedExamples(griffe.Extension):
    """Put the examples of docstrings (``>>>``) into code blocks: Markdown takes them for quotations."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of ``obj``, if it has one."""
        if obj.docstring is not None:
            obj.docstring.value = _EXAMPLE.sub(r"\n```pycon\n\g<0>\n```\n", obj.docstring.value)


def on_files(files: Files, config: Any) -> Files:
    """Add what is not in docs/: other pages, linked sources, the API reference."""
    others = [str(path.relative_to(ROOT)) for pattern in OTHER_PAGES for path in sorted(ROOT.glob(pattern))]
    others = [path for path in others if path.endswith(SITE_FILES)]
    _home.update({file.src_uri: f"docs/{file.src_uri}" for file in files.documentation_pages()})
    _home.update({uri_of(path): path for path in others})
    files.remove(files.src_uris["index.md"])
    for path in others:
        files.append(File.generated(config, uri_of(path), abs_src_path=str(ROOT / path)))
    for path in sorted(linked_sources([path for path in set(_home.values()) if path.endswith(".md")])):
        text = (ROOT / path).read_text(encoding="utf-8")
        page = f"# {path}\n\n````{'python' if path.endswith('.py') else 'text'}\n{text}\n````\n"
        files.append(File.generated(config, uri_of(path), content=page))
    for uri, text in reference():
        files.append(File.generated(config, uri, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn the links of a page that comes from the repository."""
    uri = page.file.src_uri
    return turned(markdown, _home[uri], uri) if uri in _home else markdown


def on_post_build(config: Any) -> None:
    """Refuse a site whose pages fetch anything from another host."""
    for page in Path(config.site_dir).rglob("*.html"):
        if found := _FETCHED.search(page.read_text(encoding="utf-8")):
            raise PluginError(f"{page} fetches from another host: {found[0]}")
