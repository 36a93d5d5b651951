"""A pipeline of stages under Keras: the layers of a model, what they cost, and how they are cut and run."""
