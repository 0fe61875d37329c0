"""OC-3, and the products of OC-8 and OC-12: a tall weight matrix, read once, times a few rows."""
