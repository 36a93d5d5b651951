"""How long the stages of a dataset take, and what would make them faster."""
