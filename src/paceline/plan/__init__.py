"""PLAN: which stage of a pipeline does what, in which order, and which layers it has; pure functions, no TensorFlow.

A model is cut into *chunks* of consecutive layers. A *stage* is a place in the pipeline and has one chunk, or several
(`interleaved`, `zb-v`). A batch is cut into *micro-batches*, which pass through the chunks one after the other.

    layers and costs ─► partition.py ─► split ─► schedules.py ─► plan ─► simulation.py ─► step time, bubble
      (profile.py)      (split.py)                                │  └──► memory.py ─────► peak per stage
                                                                  └─────► chart.py, an executor
    comparison.py does all of this for several schedules and names the fastest.

Replicas: every replica of a stage executes the plan of its stage, each on micro-batches of its own rows. A plan
therefore speaks of stages; `stage * replicas + replica` is the rank.
"""
