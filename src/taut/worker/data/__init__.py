"""The worker's share of the data: leases and batches."""
