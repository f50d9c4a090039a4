"""Write named tensors to one file that `numpy.load` reads."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping

import numpy as np

from tessel_core.ir.operators.operator import Array


def tensors_npz(tensors: Mapping[str, Array]) -> bytes:
    """Return an `.npz` file. Equal tensors give equal bytes. A tensor may have any text as its name."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, array in tensors.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, np.asanyarray(array), allow_pickle=False)
    return made.getvalue()
