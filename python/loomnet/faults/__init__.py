"""What goes wrong and when: the faults of a run, their timetable, the capacity that they leave."""
