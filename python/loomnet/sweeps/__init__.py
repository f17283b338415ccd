"""Many runs of one scenario: the points, the workers, the table."""
