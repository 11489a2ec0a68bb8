"""Bridges to other accounting libraries. Each one is imported only when it is used, and is an optional extra."""
