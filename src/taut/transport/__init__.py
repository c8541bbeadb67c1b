"""Moving messages between workers: framing, keys, and two transports (ZeroMQ with CURVE, and in memory)."""
