"""Certificates: proofs of optimality that can be checked without believing a solver."""
