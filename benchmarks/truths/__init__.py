"""What is true: exact answers, apart from the package and from the runs."""
