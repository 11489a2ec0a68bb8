"""Methods of the literature that are never the tightest here: run when they are named, and by ``compare``."""
