"""What runs on a fabric, as the user states it: training, collectives, flows, graphs of tasks."""
