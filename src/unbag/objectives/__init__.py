"""Risks and losses."""
