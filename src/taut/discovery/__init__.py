"""Workers find a supervisor without an address: in a folder that both see (shared_file.py), or in a LAN (lan.py), where a
short code (code.py) pairs them (pairing.py, pairing_server.py, pairing_client.py). choice.py takes one of several."""
