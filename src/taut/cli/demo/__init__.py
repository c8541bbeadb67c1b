"""The trainings of ``taut demo``, and their results."""
