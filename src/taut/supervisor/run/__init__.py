"""The state machine of a run: admission, handlers, phases, the end. Pure."""
