"""The families of b-min-sep: by a recursion, and with cut batches (``truncated``)."""
