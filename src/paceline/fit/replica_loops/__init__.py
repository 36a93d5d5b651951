"""The numbers of one worker in loops of a script's own that call `strategy.run`, beyond what TensorFlow does there.

A trainer's step, and a loop that names no strategy, are traced as one worker has them and divided by rules (`spmd/`).
A step of `strategy.run` cannot be: the script says itself what each replica computes, and what is combined over
replicas. TensorFlow's meaning of it is kept, and what Keras does in it is made one worker's where replicas have
different numbers of rows, draw random numbers, clip or accumulate gradients, or move statistics.

This needs patches of Keras's losses, metrics, variables, layers and random numbers. They are put in their places when
a process first calls `strategy.run` over several replicas (`seams.py`): scripts that train with `fit`, or in a loop
without a strategy, run Keras as it is. See docs/decisions/0038-loops-with-strategy-run.md.
"""
