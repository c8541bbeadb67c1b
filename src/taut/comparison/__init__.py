"""A fair comparison: a matrix of runs, real or simulated, repeated over seeds, and a report of their differences.

runs/ makes the runs and keeps a record of each; report/ makes tables, charts, findings and the page.
"""

from __future__ import annotations

from taut.comparison.runs.comparison import Comparison, compare
from taut.comparison.runs.record import RunRecord

__all__ = ["Comparison", "RunRecord", "compare"]
