"""A worker's end of the cluster: the communication thread.

node.py, courier.py            who does its work, and the work itself
facts.py, commands.py          what it has learnt for the training thread, and what that one asks of it
supervisor_link.py             its talk with the supervisor
stage.py, stages.py, early.py  the strategies' protocols, a stage for each phase
handover.py, transfer.py       states from donors to newcomers
backlog.py, refusals.py        what waits for the training thread, and what was refused
"""
