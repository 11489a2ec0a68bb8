"""Which mechanism to use: candidates within a memory and a loader, ranked by the predicted error of training."""
