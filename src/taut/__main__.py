"""``python -m taut``: the same as ``taut``."""

from taut.cli.entry import main

if __name__ == "__main__":
    main()
