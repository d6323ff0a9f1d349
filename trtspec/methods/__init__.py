"""One file per speculative method; the union below is the table."""
