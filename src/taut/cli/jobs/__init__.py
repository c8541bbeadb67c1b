"""Scripts that come with taut; in a folder of their own, as a script's folder comes first in its imports."""
