"""How a worker gets into a run: connect, be admitted, announce its addresses, and rejoin after an eviction.

launched.py reads what a launcher says, script_worker.py runs a script as a worker, island_member.py joins the
processes that hold one replica together.
"""
