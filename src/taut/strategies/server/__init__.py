"""Strategies with a parameter server or a center vector, held by the workers: server, easgd, diloco_delayed."""
