"""A worker's part of a run's checkpoints, made beside training, and going on from one.

part.py                                what happens when, from the order to the whole file
contents.py, random_states.py          what is in it
copying.py, gpu_copying.py             the copy of one moment; errands.py: the thread that takes it
file.py, tree.py                       the file
writing.py, scribe.py                  the process that writes it, and that process as the worker sees it
resumption.py                          going on from one
"""
