"""Reliable delivery between two workers: channels, retransmission, flow control, batches of payloads."""
