"""`kvgate report`: the evidence of one sweep as a page, as lines, as a table, and as parameters for other tools."""
