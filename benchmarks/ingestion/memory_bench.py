"""How much memory do the buffers of AUTOTUNE take? See README.md beside this file."""

import argparse
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import harness  # noqa: E402

WORKER = str(HERE / "memory_worker.py")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host-bytes", type=int, default=4 << 30, help="memory of the host that two workers share")
    options = parser.parse_args()
    share = options.host_bytes // 2 >> 20
    rows = []
    for way, name, limit in (("stock", "stock tf.data", "-"), ("share", "one of two workers", str(share))):
        found = harness.run_job([sys.executable, WORKER, way, str(options.host_bytes)])
        rows.append([name, f"{found['peak']:.0f}", f"{found['buffers']:.0f}", limit])
    print(harness.table(["reader", "peak, MB", "of it since the iterator was made", "the worker's share, MB"], rows))


if __name__ == "__main__":
    main()
