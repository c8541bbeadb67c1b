"""The supervisor: admits workers, deals data, notices deaths, keeps statistics, decides the finish. Never
in the data path.

cluster.py and the parts it puts together (hearing.py, course.py, roll.py, lending.py, ending.py and others) are pure:
messages and times in, actions out. loop.py and service.py, journal.py, files.py and store.py are the shells that touch
sockets, the clock and files. docs/supervisor.md lists them all.
"""
