"""What a user keeps of a run: result, report, run directory, comparisons, pictures."""
