"""What the workers of `test_files.py` do, case by case, and the plain process that reads beside them."""
