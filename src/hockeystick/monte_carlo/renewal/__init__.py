"""The families of b-min-sep: by a recursion, with wide columns (``wide``), and with cut batches (``truncated``)."""
