"""What the Python files of a commit say, read without running them."""
