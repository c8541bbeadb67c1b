"""Measure each codec on this machine: beside training (shadow.py) or on updates that were made up or stored."""
