"""Records and functions that all packages use: messages, events, the clock, sample ranges, files."""
