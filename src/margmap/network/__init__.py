"""Bayesian and Markov networks: the value, what a query needs of it, elimination orders, compiling, eliminating."""
