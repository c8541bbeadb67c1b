"""``taut.hf.TautTrainer``: the Trainer of Hugging Face as a worker (``pip install 'taut[hf]'``).

``TautMixin`` makes the same of a Trainer of your own: ``class Mine(TautMixin, Seq2SeqTrainer)``.
"""

from __future__ import annotations

from taut.hf.trainer import TautMixin, TautTrainer

__all__ = ["TautMixin", "TautTrainer"]
