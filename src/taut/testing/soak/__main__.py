"""Run the soak: ``python -m taut.testing.soak``."""

import sys

from taut.testing.soak.soak import main

if __name__ == "__main__":
    sys.exit(main())
