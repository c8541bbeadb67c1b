"""Fuzzing of payloads, frames and messages."""
