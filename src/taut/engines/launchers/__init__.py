"""Launchers of others start a script as one of several processes: ``torchrun``, ``mpi`` (mpirun), ``slurm`` (srun).

A class made from ``Launcher`` reads their environment (base.py); enter.py finds the run, or starts its supervisor.
"""
