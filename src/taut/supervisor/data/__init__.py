"""Data leases: which worker trains on which samples. Pure."""
