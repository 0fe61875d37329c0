"""The latency-specialised decode path: what it refuses, which steps it takes, and how it runs them."""
