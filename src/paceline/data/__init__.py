"""FEED: who reads which rows."""
