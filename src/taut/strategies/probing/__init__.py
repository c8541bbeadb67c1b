"""Measure step times and links: the method that ``taut probe`` runs."""

from __future__ import annotations

WATCHED = "tether+threshold+dense"  # the codecs that a probe watches, if none are named
