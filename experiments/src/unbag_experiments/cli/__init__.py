"""The commands ``unbag reproduce`` and ``unbag bench``: the entry points ``unbag.commands`` of this distribution."""
