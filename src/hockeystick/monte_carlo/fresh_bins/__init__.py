"""The family of random allocation with correlated noise, one visit in each epoch."""
