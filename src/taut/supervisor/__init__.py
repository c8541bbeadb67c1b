"""The supervisor: admits workers, leases data, notices deaths, keeps statistics, decides the end. No update passes
it.

run/cluster.py and the parts that it combines (in run/, data/, faults/ and checkpoints/) are pure: messages and times
in, actions out. loop.py, service.py, storage/ and checkpoints/folder.py touch sockets, the clock and files."""
