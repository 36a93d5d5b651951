"""The rules, by topic: which operation is which map of factors, and code for what is no such map.

    entrywise.py      each entry by itself           products.py   products of matrices, convolutions, pools
    reductions.py     over some dimensions           moves.py      transposes, concatenations, gathers, slices
    shapes.py         shapes, reshapes, broadcasts   lists.py      lists of tensors, as loops have them
    effects.py        what only rank 0 runs          no_rows.py    ranks without a row
    randoms.py        random numbers                 own_rows.py   what is asked for each rank's rows
    rule.py           what a rule is, and those of a script (`paceline.register_rule`)

`table.py` is where `partition.py` looks, which has branches and loops itself. `docs/rules.md` shows them all.
"""
