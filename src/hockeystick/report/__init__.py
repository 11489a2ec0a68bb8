"""Text, tables and plots. No numerics."""
