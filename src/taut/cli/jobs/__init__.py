"""Scripts that come with taut. They have a folder of their own because a script's folder comes first in its imports."""
