"""``paceline snapshot``: what is in a snapshot directory, whether it is whole, and deleting what is old.

Reads the command line and prints; the store does the rest. Loads neither TensorFlow nor NumPy.
"""

import json
import time
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from paceline.cli.parameters import require_linux
from paceline.errors import EXIT_CONFIGURATION, EXIT_FAILED, EXIT_UNAVAILABLE, ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from paceline.store.manifest import DamagedSnapshot, SnapshotInfo
    from paceline.store.snapshots import SnapshotStore

NEWEST = "newest"

snapshot = typer.Typer(
    name="snapshot",
    help="List, show, verify and prune the snapshots of a directory.",
    epilog="Try: paceline snapshot list /shared/run-7",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

Directory = Annotated[
    str, typer.Argument(metavar="DIR", help="The directory of --snapshot-dir, or s3://... .", show_default=False)
]
Step = Annotated[str, typer.Argument(metavar="STEP|newest", help="A step, or the name of a snapshot.")]
Json = Annotated[bool, typer.Option("--json", help="JSON, for programs.")]


@snapshot.command(
    "list", epilog="Examples: paceline snapshot list DIR; paceline snapshot list DIR --json | jq '.[0].step'"
)
def list_(directory: Directory, as_json: Json = False) -> None:
    """List all snapshots, newest first. Only manifests and file sizes are checked, not the contents of files."""
    entries = _store(directory).entries()
    if as_json:
        typer.echo(json.dumps([_summary(entry) for entry in entries], indent=2))
    elif not entries:
        typer.echo(f"no snapshots in {directory}")
    else:
        from paceline.cli import snapshot_table  # rich, which help does not need

        snapshot_table.print_entries(entries, time.time())


@snapshot.command("show", epilog="Examples: paceline snapshot show DIR; paceline snapshot show DIR 1300")
def show(directory: Directory, step: Step = NEWEST, as_json: Json = False) -> None:
    """Show one snapshot: its manifest, and the tensors of each rank with type, shape and variable."""
    from paceline.store.folder import DamagedSnapshotError
    from paceline.wire.codec import encode

    store = _store(directory)
    info = _chosen(store, step)
    reader = store.open(info)
    try:
        headers = {shard.rank: reader.headers(shard.rank) for shard in info.shards}
        paths = {shard.rank: reader.paths(shard.rank) for shard in info.shards}
    except (DamagedSnapshotError, OSError) as error:
        _fail(f"{info.path}: {error} [snapshot-damaged]", EXIT_FAILED)
    if as_json:
        tensors = {
            rank: {
                name: {"dtype": one.dtype, "shape": one.shape, "path": paths[rank].get(name)}
                for name, one in of_rank.items()
            }
            for rank, of_rank in headers.items()
        }
        shards = [{**json.loads(encode(shard)), "tensors": tensors[shard.rank]} for shard in info.shards]
        typer.echo(json.dumps({**_summary(info), "notes": info.notes, "shards": shards}, indent=2))
    else:
        from paceline.cli import snapshot_table  # rich, which help does not need

        snapshot_table.print_snapshot(info, headers, paths, time.time())


@snapshot.command("verify", epilog="Examples: paceline snapshot verify DIR; paceline snapshot verify DIR 1300")
def verify(
    directory: Directory,
    step: Annotated[
        str, typer.Argument(metavar="[STEP|newest|all]", help="A step, or the name of a snapshot.")
    ] = "all",
) -> None:
    """Read every byte and compare checksums. Exits with 1 if a snapshot is damaged, and names the damaged files."""
    from paceline.cli import snapshot_table  # rich, which help does not need
    from paceline.store.manifest import DamagedSnapshot

    store = _store(directory)
    entries = store.entries() if step == "all" else (_chosen(store, step),)
    if not entries:
        _fail(f"no snapshots in {directory} [snapshot-directory]", EXIT_FAILED)
    damaged = []
    for entry in entries:
        if isinstance(entry, DamagedSnapshot):
            faults: tuple[object, ...] = (entry.fault,)
        else:
            with snapshot_table.progress(entry) as told:
                faults = store.verify(entry, told)
        typer.echo(f"{entry.name}  {'damaged' if faults else 'intact'}")
        for fault in faults:
            typer.echo(f"    {fault}")
        damaged += [entry.name] if faults else []
    if damaged:
        _fail(f"{len(damaged)} of {len(entries)} damaged: {', '.join(damaged)} [snapshot-damaged]", EXIT_FAILED)


def _policies(keep: str) -> str:
    from paceline.cluster.value_checks import RETENTION

    fault = RETENTION.fault("--keep", keep)
    if fault is not None:
        raise typer.BadParameter(f"{fault} [option]")
    return keep


@snapshot.command(
    "prune",
    epilog="Examples: paceline snapshot prune DIR --keep 2 --dry-run; "
    "paceline snapshot prune DIR --keep 2,best:3:val_loss",
)
def prune(
    directory: Directory,
    keep: Annotated[
        str,
        typer.Option(
            metavar="N|POLICIES",
            help="Which intact snapshots are kept, as --snapshot-keep of paceline run.",
            callback=_policies,
            show_default=False,
        ),
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would be deleted.")] = False,
) -> None:
    """Delete all but the newest N snapshots, or those that policies keep, which are read first: they must be intact."""
    try:
        pruned = _store(directory).prune(keep, dry_run=dry_run)
    except OSError as error:
        _fail(f"cannot delete in {directory}: {error} [snapshot-directory]", EXIT_UNAVAILABLE)
    for name in pruned.removed:
        typer.echo(f"{'would remove' if dry_run else 'removed'} {name}")
    typer.echo(f"{len(pruned.kept)} kept, {len(pruned.removed)} {'would go' if dry_run else 'removed'}")


def _store(directory: str) -> "SnapshotStore":
    require_linux()
    from pathlib import Path

    from paceline.store.snapshots import SnapshotStore

    if "://" not in directory and not Path(directory).is_dir():
        raise typer.BadParameter(
            f"received {directory!r}, which is no directory; expected that of --snapshot-dir [option]"
        )
    try:
        return SnapshotStore(directory)
    except ConfigurationError as error:
        _fail(str(error), EXIT_CONFIGURATION)


def _chosen(store: "SnapshotStore", wanted: str) -> "SnapshotInfo":
    from paceline.store.manifest import SnapshotInfo

    is_wanted: Callable[[SnapshotInfo | DamagedSnapshot], bool]
    if wanted == NEWEST:
        is_wanted = lambda entry: isinstance(entry, SnapshotInfo)  # noqa: E731
    else:
        is_wanted = lambda entry: wanted in (str(entry.step), entry.name)  # noqa: E731
    entries = store.entries()
    for entry in filter(is_wanted, entries):
        if isinstance(entry, SnapshotInfo):
            return entry
        _fail(f"{entry.path} is damaged: {entry.fault} [snapshot-damaged]", EXIT_FAILED)
    there = ", ".join(str(entry.step) for entry in entries) or "none"
    raise typer.BadParameter(f"received {wanted!r}; expected one of these steps: {there}, or {NEWEST} [option]")


def _summary(entry: "SnapshotInfo | DamagedSnapshot") -> dict[str, object]:
    from paceline.store.manifest import DamagedSnapshot

    if isinstance(entry, DamagedSnapshot):
        return {"name": entry.name, "path": entry.path, "step": entry.step, "fault": str(entry.fault)}
    return {
        "name": entry.name,
        "path": entry.path,
        "step": entry.step,
        "epoch": entry.epoch,
        "fit_call": entry.fit_call,
        "world_size": entry.world_size,
        "created_at_seconds": entry.created_at_seconds,
        "size_bytes": entry.size_bytes,
        "fault": None,
    }


def _fail(message: str, exit_code: int) -> NoReturn:
    typer.echo(message, err=True)
    raise typer.Exit(exit_code)
