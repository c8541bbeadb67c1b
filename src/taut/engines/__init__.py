"""Engines start worker processes: local.py on this machine, through zygote.py, which forks after the slow imports."""
