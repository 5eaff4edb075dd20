"""Where work is done: processes of this machine or workers of a cluster. It knows nothing of marginal MAP."""
