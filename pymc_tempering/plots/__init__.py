"""Pictures of a tempering run and of the evidence."""
