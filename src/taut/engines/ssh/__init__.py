"""Workers on machines that ssh reaches, for ``taut run --hosts a,b:2``."""
