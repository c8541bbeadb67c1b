"""Owns the model: the arena, the local step, what is sent and included, and the worker's side of the run.

iteration.py, participant.py, local.py   the framework-free level: one iteration, and how an update is included
arena.py, replica.py, torch_worker.py    the torch model, its codec, and the worker that taut.join returns
join.py, entrance.py, admission.py       into a run
seat.py, phases.py, returning.py         a place in it, and the strategies it follows, one after the other
finishing.py, bequest.py, validation.py  out of it
batches.py, supervisor_leases.py         its share of the data
reading.py, sampling.py                  what batches() is given: data sets, DataLoaders, samplers
script_worker.py                         the one worker of a script, and the end of the script
state.py, training_state.py              what a newcomer is given; state_memory.py: what codecs and methods remember
accounting.py                            where every second goes
node/                                    the communication thread: what it does, and what it learnt
talks/                                   how the training thread exchanges: by streams, in rounds, by gradients
checkpoints/                             copies taken beside training, files, and going on from them
codec_costs/                             what each codec costs on this machine and this model
"""
