"""Virtual time: the same strategies, codecs, topologies and membership, driven by a clock that jumps.

scenario.py     everything that a simulation needs: machines, links, faults, seed
models/         the models of network, speeds and costs
script/         every worker really trains, with the runtime's own code
timing/         sizes and durations alone, for thousands of workers
trace.py        every event with its time, the same to the byte when it is repeated
"""
