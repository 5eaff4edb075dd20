"""Marginal MAP: the question, the steps from the model to the answer, and the exact methods."""
