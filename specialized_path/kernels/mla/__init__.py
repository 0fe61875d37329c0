"""Multi-head latent attention (OC-8 after its projection, OC-9, OC-10, OC-11)."""
