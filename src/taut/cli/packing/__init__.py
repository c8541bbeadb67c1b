"""Jobs in one file: ``taut pack`` writes a script with its modules and settings, ``taut run job.taut`` runs it."""
