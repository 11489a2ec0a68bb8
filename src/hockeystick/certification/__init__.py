"""Which accountants run, in which order, and certificates: how they are issued, worded and verified."""
