"""What each codec costs on this machine and this model.

measuring.py                          one codec on a stream of updates
shadow.py                             every codec, beside training
synthetic_updates.py, update_file.py  updates where no model is at hand
"""
