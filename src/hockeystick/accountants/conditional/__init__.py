"""Parts of the conditional composition accountant."""
