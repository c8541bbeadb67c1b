"""The report of a comparison: tables, charts, findings, one page."""
