"""The family of the pair that bounds shuffled batches from below."""
