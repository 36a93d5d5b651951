"""Rows that are read by their numbers: TFRecord files, arrays, data sets of Grain."""
