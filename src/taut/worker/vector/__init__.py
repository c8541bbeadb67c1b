"""The worker of ``taut.join_vector``: an array that the script changes in place, whatever framework computes."""
