"""The smallest noise multiplier whose certified bound meets a target."""
