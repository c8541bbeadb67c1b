"""``taut.keras.join``: a compiled model of Keras 3, on its torch backend, in a run of one or of many
(``pip install 'taut[keras]'``)."""

from __future__ import annotations

from taut.keras.dealt import Dealt
from taut.keras.join import join

__all__ = ["Dealt", "join"]
