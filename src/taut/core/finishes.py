"""How the model that a run returns is chosen from those of its workers."""

FINISHES = ("average", "best", "any", "ensemble")
