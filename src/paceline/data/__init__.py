"""FEED: who reads which rows.

For scripts: `element_wise`, `once_per_host`, `profile`, `records`, `rows`, `service`, `shard`.

Importing this package imports no TensorFlow: the launcher's processes do so before the script begins.
"""

from typing import TYPE_CHECKING, Any

from paceline.data.own_rows.marked_functions import element_wise as element_wise

if TYPE_CHECKING:
    from paceline.data.indexed.by_index import records as records
    from paceline.data.indexed.by_index import rows as rows
    from paceline.data.items.shared_generators import once_per_host as once_per_host
    from paceline.data.own_rows.auto_shard import shard as shard
    from paceline.data.timing.profiling import profile as profile
    from paceline.data.workers.data_service import service as service

_HOMES = {
    "once_per_host": "paceline.data.items.shared_generators",
    "profile": "paceline.data.timing.profiling",
    "records": "paceline.data.indexed.by_index",
    "rows": "paceline.data.indexed.by_index",
    "service": "paceline.data.workers.data_service",
    "shard": "paceline.data.own_rows.auto_shard",
}

__all__ = ["element_wise", "once_per_host", "profile", "records", "rows", "service", "shard"]


if not TYPE_CHECKING:  # a type checker would take any name for one of these

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module 'paceline.data' has no attribute {name!r}; it has {', '.join(__all__)}")
        import importlib

        return getattr(importlib.import_module(_HOMES[name]), name)
