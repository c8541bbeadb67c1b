"""Workers as actors of a Ray cluster, for ``taut run --engine ray`` and ``taut.ray.Trainer``."""
