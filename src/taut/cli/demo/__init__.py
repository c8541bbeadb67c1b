"""The trainings of ``taut demo``, their figures and pictures."""
