"""A worker's part of a run's checkpoints, made beside training; and resuming from a checkpoint.

checkpointer.py                        what happens when, from the request to the finished file
contents.py, rng_states.py, reflect.py what is in it
memory_copy.py, gpu_copy.py            the copy of one moment; background.py: the thread that takes it
file.py, state_tree.py                 the file
writer_program.py, writer_process.py   the program that writes it, and its process as the worker sees it
resume.py                              resuming from one
"""
