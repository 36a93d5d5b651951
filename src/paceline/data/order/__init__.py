"""All ranks draw one order, also after a restart."""
