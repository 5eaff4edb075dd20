"""Questions with one answer that every circuit and network can give: likelihoods, marginals, posteriors, samples."""
