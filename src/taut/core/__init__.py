"""Records and functions that all other packages use: messages, events, the clock, failure detection, sample ranges."""
