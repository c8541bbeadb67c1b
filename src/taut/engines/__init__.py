"""Who starts the worker processes, and where: ``local`` (this machine), by way of ``zygote``."""
