"""Frontier: exact marginal MAP of structured-decomposable circuits, bottom-up over the tree of their scopes."""
