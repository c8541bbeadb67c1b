"""Engines start the worker processes: ``local`` on this machine, by way of ``zygote``; ``ssh`` and ``ray`` elsewhere."""
