"""A fair comparison: a matrix of runs, real or simulated, repeated over seeds, and a report that says what they show.

listing.py      how lists of choices are written
matrix.py       which runs there are; which combinations are left out, and why
job.py          what is run in every cell, and the key under which its result is kept
one_run.py      a cell as a real run, simulated_run.py: in virtual time
record.py       what is kept of a run, history.py: how it went, on a grid of times
comparison.py   all cells, one after the other, resumed where they were left
target.py, table.py, findings.py    what it amounts to
curves.py, drawing.py, charts.py, bars.py, page.py, report.py    the report
"""

from __future__ import annotations

from taut.comparison.runs.comparison import Comparison, compare
from taut.comparison.runs.record import RunRecord

__all__ = ["Comparison", "RunRecord", "compare"]
