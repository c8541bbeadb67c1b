"""A fair comparison: a matrix of runs, real or simulated, repeated over seeds, and a report that says what they show.

runs/     which runs there are (listing, matrix), how one is made (job, real_run, simulated_run), what is kept of it
          (record, history, target), and all of them one after the other, resumed where they were left (comparison)
report/   tables, findings in words, charts, and the page
"""

from __future__ import annotations

from taut.comparison.runs.comparison import Comparison, compare
from taut.comparison.runs.record import RunRecord

__all__ = ["Comparison", "RunRecord", "compare"]
