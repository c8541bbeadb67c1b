"""What one part asks of another is declared: nothing in src asks an object whether it happens to have an attribute."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from sources import PATHS, named, nodes_in, nodes_of

from taut.transport.memory import MemoryNetwork, MemorySupervisor, MemoryTransport
from taut.transport.transport import ServerSocket, Transport

# Objects that are not taut's own (a user's model or function, the operating system, an exception), or classes that are
# asked before a plugin's class is accepted.
JUSTIFIED = {
    "engines/script.py": {"__notes__"},
    "cli/main.py": {"__notes__"},
    "engines/zygote.py": {"SIGKILL"},
    "core/files.py": {"O_BINARY"},
    "cli/function_launch.py": {"__name__", "__qualname__", "__module__"},
    "worker/exchange/distillation.py": {"logits"},
    "worker/exchange/torch_distributed.py": {"uuid"},
    "worker/model/given.py": {"_orig_mod"},
    "worker/optimizer/joined.py": {"optimizer"},
    "worker/joining/script_worker.py": {"last_exc", "last_value"},
    "worker/validation.py": {"__qualname__", "__code__"},
    "cli/output/console.py": {"rich_proxied_file", "encoding"},
    "core/messages/base.py": {"types", "item_type"},
    "plugins.py": {"name"},
}


def defaulted(path: Path) -> set[str]:
    """Return the names that ``path`` asks for by ``getattr(x, "name", default)``."""
    found = set()
    for node in nodes_of(path):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr":
            name = node.args[1] if len(node.args) == 3 else None
            if name is not None:
                found.add(str(name.value) if isinstance(name, ast.Constant) else "a variable")
    return found


def test_no_seam_is_asked_by_getattr() -> None:
    asked = {named(path): defaulted(path) for path in PATHS}
    allowed = {name: JUSTIFIED.get(name, set()) for name in asked}
    beyond = {name: names - allowed[name] for name, names in asked.items() if names - allowed[name]}
    assert not beyond, "declare it in the protocol of the object that is asked"
    unused = [name for name, names in JUSTIFIED.items() if names - asked.get(name, set())]
    assert not unused, "no longer needed"


def unguarded(nodes: Sequence[ast.AST]) -> list[int]:
    """Return the lines that catch msgspec's errors without those of text that is no UTF-8, which msgspec raises, too."""
    found = []
    for node in nodes:
        if isinstance(node, ast.ExceptHandler) and node.type is not None:
            caught = ast.unparse(node.type)
        elif isinstance(node, ast.Call) and "suppress" in (getattr(node.func, "attr", ""), getattr(node.func, "id", "")):
            caught = ast.unparse(node)
        else:
            continue
        if re.search(r"msgspec\.(DecodeError|MsgspecError)", caught) and not re.search(
            r"\b(UnicodeDecodeError|ValueError)\b", caught
        ):
            found.append(node.lineno)
    return found


def test_text_that_is_no_utf_8_is_caught_where_other_damage_is() -> None:
    with pytest.raises(UnicodeDecodeError):
        msgspec.json.decode(b'"\xff"')
    bad = "try: pass\nexcept msgspec.DecodeError: pass\nwith suppress(msgspec.MsgspecError): pass"
    assert sorted(unguarded(nodes_in(bad))) == [2, 3]
    found = {named(path): unguarded(nodes_of(path)) for path in PATHS}
    assert {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.parametrize("made", [MemoryTransport, MemorySupervisor])
def test_ends_in_memory_have_all_that_is_declared(made: type) -> None:
    network = MemoryNetwork()
    end = network.transport(0) if made is MemoryTransport else network.supervisor()
    declared = Transport if made is MemoryTransport else ServerSocket
    names = {name for name in {*vars(declared), *declared.__annotations__} if not name.startswith("_")}
    assert all(hasattr(end, name) for name in names)
