"""The supervisor: admits workers, leases data, detects deaths, keeps statistics, ends the run. Updates never pass
through it.

run/, data/ and faults/ and the schedule of checkpoints/ are pure: messages and times in, actions out (``Cluster``, in
run/cluster.py, puts them together). loop.py, service.py and storage/ are the shells around them that touch sockets,
the clock and files. docs/supervisor.md has the protocol.
"""
