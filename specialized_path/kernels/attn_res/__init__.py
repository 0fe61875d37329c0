"""OC-2, OC-13 and OC-21: the mixture of finished blocks and prefix, normalised, for the operator that follows."""
