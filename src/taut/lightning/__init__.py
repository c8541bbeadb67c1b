"""``taut.lightning.TautStrategy``: a Lightning Trainer is a worker (``pip install 'taut[lightning]'``).

The import also registers it, so that ``Trainer(strategy="taut")`` works.
"""

from __future__ import annotations

from taut.lightning.strategy import TautStrategy

__all__ = ["TautStrategy"]
