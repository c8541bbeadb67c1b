"""Virtual time: the same strategies, codecs, topologies and membership, driven by a clock that jumps.

scenario.py     what is simulated: machines, links, faults, seed; and how that is written
network.py, speeds.py, faults.py, costs.py    the models it is made of
timing/         sizes and durations alone, for thousands of workers
numeric.py      every worker really trains, with the runtime's own code
trace.py        what happened when, to the byte
"""
