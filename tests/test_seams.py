"""What one part asks of another is declared: nothing in src asks an object whether it happens to have an attribute."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import msgspec
import pytest

from taut.transport.memory import MemoryNetwork, MemorySupervisor, MemoryTransport
from taut.transport.transport import ServerSocket, Transport

SRC = Path(__file__).parents[1] / "src" / "taut"

# Objects that are not taut's own (a user's model or function, the operating system, an exception), or classes that are
# asked before a plugin's class is accepted.
JUSTIFIED = {
    "engines/script.py": {"__notes__"},
    "engines/zygote.py": {"SIGKILL"},
    "core/files.py": {"O_BINARY"},
    "worker/exchange/distillation.py": {"logits"},
    "worker/model/optimizers.py": {"optimizer"},
    "worker/script_worker.py": {"last_exc", "last_value"},
    "worker/validation.py": {"__qualname__", "__code__"},
    "cli/output/console.py": {"rich_proxied_file", "encoding"},
    "core/messages/base.py": {"types", "item_type"},
    "plugins.py": {"name"},
}


def defaulted(path: Path) -> set[str]:
    """Return the names that ``path`` asks for by ``getattr(x, "name", default)``."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr":
            name = node.args[1] if len(node.args) == 3 else None
            if name is not None:
                found.add(str(name.value) if isinstance(name, ast.Constant) else "a variable")
    return found


def test_no_seam_is_asked_by_getattr() -> None:
    asked = {str(path.relative_to(SRC)): defaulted(path) for path in sorted(SRC.rglob("*.py"))}
    allowed = {name: JUSTIFIED.get(name, set()) for name in asked}
    beyond = {name: names - allowed[name] for name, names in asked.items() if names - allowed[name]}
    assert not beyond, "declare it in the protocol of the object that is asked"
    unused = [name for name, names in JUSTIFIED.items() if names - asked.get(name, set())]
    assert not unused, "no longer needed"


def unguarded(source: str) -> list[int]:
    """Return the lines that catch msgspec's errors without those of text that is no UTF-8, which msgspec raises, too."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ExceptHandler) and node.type is not None:
            caught = ast.unparse(node.type)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("suppress"):
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
    assert unguarded("try: pass\nexcept msgspec.DecodeError: pass\nwith suppress(msgspec.MsgspecError): pass") == [2, 3]
    found = {str(path.relative_to(SRC)): unguarded(path.read_text(encoding="utf-8")) for path in SRC.rglob("*.py")}
    assert {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.parametrize("made", [MemoryTransport, MemorySupervisor])
def test_ends_in_memory_have_all_that_is_declared(made: type) -> None:
    network = MemoryNetwork()
    end = network.transport(0) if made is MemoryTransport else network.supervisor()
    declared = Transport if made is MemoryTransport else ServerSocket
    names = {name for name in {*vars(declared), *declared.__annotations__} if not name.startswith("_")}
    assert all(hasattr(end, name) for name in names)
