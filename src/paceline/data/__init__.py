"""FEED: who reads which rows. For scripts: `paceline.data.element_wise`."""

from paceline.data.marked_functions import element_wise as element_wise

__all__ = ["element_wise"]
