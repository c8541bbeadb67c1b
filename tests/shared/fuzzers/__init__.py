"""Fuzzing of frames, the supervisor's handlers and the workers' messages; samples of messages and payloads."""
