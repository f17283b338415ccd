"""Hands what a script's torch.profiler exports to the run that is being traced: the run puts it on
the timeline of its packets. The script holds nothing of this."""

from __future__ import annotations

import functools
import json
import os
import shutil
from pathlib import Path
from typing import Any

from loomnet.torch.private_names import replace


def install(folder: str, pauses: list[tuple[int, int]]) -> None:
    """Keeps a copy of every chrome trace that this process exports, as `folder`/<rank>.<n>.json,
    and the `pauses` of its step hook up to then beside it, as <rank>.<n>.pauses."""
    from torch.autograd.profiler import profile

    rank, made = os.environ.get("RANK", "0"), 0

    def keeping(export: Any) -> Any:
        @functools.wraps(export)
        def exporting(self: Any, path: Any, *others: Any, **named: Any) -> Any:
            nonlocal made
            result = export(self, path, *others, **named)
            target = Path(folder) / f"{rank}.{made}.json"
            try:
                shutil.copyfile(path, target)
                target.with_suffix(".pauses").write_text(json.dumps(pauses))
                made += 1
            except OSError as error:
                print(f"loomnet: this profile will not be in the run's trace: {error}", flush=True)
            return result

        return exporting

    replace(
        profile,
        "export_chrome_trace",
        keeping,
        "torch.autograd.profiler.profile.export_chrome_trace",
    )
