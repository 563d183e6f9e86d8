"""Checks of data before a fit and of models after it."""
