"""taut's own log, on standard error, at the level that was asked for. The root logger stays the user's."""

from __future__ import annotations

import logging


def set_up_log(level: str) -> None:
    """Show taut's records of ``level`` and above."""
    logger = logging.getLogger("taut")
    logger.setLevel(level.upper())
    if not logger.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
        logger.addHandler(handler)
