"""Fabrics with their traffic that are stepped by the caller, without folders and reports."""
