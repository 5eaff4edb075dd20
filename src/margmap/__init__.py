"""Exact marginal MAP."""
