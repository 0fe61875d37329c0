"""Into the experts' latent and out of it: OC-14, OC-15, the rest of OC-17, OC-18 and OC-19."""
