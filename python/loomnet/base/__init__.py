"""What every room uses: errors, units, names, tables, reading of users' files."""
