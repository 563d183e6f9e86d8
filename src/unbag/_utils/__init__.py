"""Helpers without dependence on the rest of the package: checks of arguments, files, the terminal."""
