"""The script of ``taut.launch``: calls the function in the folder that is its argument, in each worker's process."""

from __future__ import annotations

import importlib
import json
import pickle
import sys
from pathlib import Path

from taut.core.files import write_atomically
from taut.engines.devices import local_rank


def main() -> None:
    folder = Path(sys.argv[1])  # written by this user's own process, on this machine
    known = set(sys.path)
    sys.path += [path for path in json.loads((folder / "path.json").read_text(encoding="utf-8")) if path not in known]
    module, function, args, kwargs = pickle.loads((folder / "call.pickle").read_bytes())
    if module:
        found: object = importlib.import_module(module)
        for part in function.split("."):
            found = getattr(found, part)
        function = found
    try:
        result = function(*args, **kwargs)
    except Exception as error:
        write_atomically(folder / "error", f"{type(error).__name__}: {error}".encode())
        raise
    write_atomically(folder / f"result-{local_rank():06}", pickle.dumps(result))


if __name__ == "__main__":
    main()
