"""Measures kvgate against its limits and against plain truth; each script prints the table that stands in results/."""
