"""The version of the package, for modules that must not import its front."""

__version__ = "0.1.0"
