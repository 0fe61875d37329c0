"""Routed experts (OC-16, with a rank's part of OC-17's sum) on MXFP4 weights, and the shared experts (OC-18)."""
