"""The transport over TCP: ZeroMQ with CURVE encryption and authentication."""
