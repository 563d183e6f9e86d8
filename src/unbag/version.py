"""The version of unbag."""

__version__ = "0.1.0"
