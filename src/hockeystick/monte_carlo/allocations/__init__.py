"""The family of random allocation with independent noise, several visits in an epoch included."""
