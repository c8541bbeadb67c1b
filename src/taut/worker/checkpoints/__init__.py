"""A worker's part of a run's checkpoints, made beside training, and resuming from it.

checkpointer.py conducts it: memory_copy.py and gpu_copy.py copy what contents.py collects, file.py lays out the file,
writer_process.py has it written by writer_program.py in a process of its own. resume.py reads it back.
"""
