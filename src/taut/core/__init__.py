"""Records that everything else speaks: identities, messages, events, actions, the clock."""
