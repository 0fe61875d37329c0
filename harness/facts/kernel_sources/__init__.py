"""Which files of a commit hold kernels, read without running or compiling them."""
