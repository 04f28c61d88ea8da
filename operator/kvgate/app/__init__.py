"""The shell: command line, settings, and the clock."""
