"""The workers of one host: processes, cores, variables, their end, and the guard that outlives the launcher."""
