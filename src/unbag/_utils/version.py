"""The version of unbag."""

__version__ = "0.2.0"
