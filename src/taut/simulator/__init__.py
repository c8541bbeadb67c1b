"""Virtual time: the same strategies, codecs, topologies and membership, driven by a clock that jumps.

scenario.py     what is simulated: machines, links, faults, seed; faults.py: all kinds of faults
flags.py        the words of the command line for machines, links and faults
models/         network, links, speeds, costs
timing/         sizes and durations alone, for thousands of workers
script/         every worker really trains, with the runtime's own code
trace.py        what happened when, to the byte
"""
