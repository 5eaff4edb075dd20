"""The types of the arrays that circuits and kernels are made of."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

IntArray: TypeAlias = NDArray[np.int32]
LongArray: TypeAlias = NDArray[np.int64]
FloatArray: TypeAlias = NDArray[np.float64]
KindArray: TypeAlias = NDArray[np.int8]
Bits: TypeAlias = NDArray[np.uint64]
