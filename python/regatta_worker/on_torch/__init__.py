"""What libraries on torch share, and calls of theirs that take a file of their own."""
