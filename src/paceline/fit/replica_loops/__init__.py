"""The numbers of one worker in loops of a script's own that call `strategy.run`, beyond what TensorFlow does there.

A trainer's step, and a loop that names no strategy, are traced as one worker has them and divided by rules (`spmd/`).
A step of `strategy.run` cannot be: the script says itself what each replica computes, and what is combined over
replicas. TensorFlow's meaning of it is kept, and what Keras does in it is made one worker's where replicas have
different numbers of rows, draw random numbers, clip or accumulate gradients, or move statistics.

One worker's numbers need patches of Keras's losses, metrics, variables, layers and random numbers. `seams.py` lists
these patches; a process installs them when it first calls `strategy.run` over several replicas. Scripts that train with
`fit`, or in a loop without a strategy, never have them. See docs/decisions/0038-loops-with-strategy-run.md.
"""
