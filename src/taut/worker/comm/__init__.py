"""The communication thread: dispatcher.py is its loop, comm_thread.py the thread and its API for the training thread.

phase_protocols.py routes each message to the protocol of its phase, supervisor_client.py speaks with the supervisor,
run_status.py holds for the training thread what the supervisor said.
"""
