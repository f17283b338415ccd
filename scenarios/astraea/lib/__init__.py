"""What the scenarios of Astraea share."""
