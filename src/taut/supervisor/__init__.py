"""The supervisor: admits workers, deals data, notices deaths, keeps statistics, decides the finish. Never
in the data path.

detector.py, leases.py, consensus.py, finish.py, membership.py, ending.py and cluster.py are pure (messages
and times in, actions out); store.py, model_file.py and service.py are the shells that touch files, sockets
and the clock.
"""
