"""What is computed: problems, their inputs, and what their results should be."""
