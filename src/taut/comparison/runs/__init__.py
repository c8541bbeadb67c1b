"""The runs of a comparison: the matrix, each run and its record; an interrupted command resumes here."""
