"""Variables whose rows are looked up, on parameter servers: divided by rows, read and updated row by row."""
