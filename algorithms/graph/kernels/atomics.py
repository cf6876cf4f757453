"""Additions to an element of an array that several threads change at once, and by these the shares of their work."""

# numba infers the types of kernels from the arrays that they receive.
# mypy: disallow-untyped-defs=False

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

SLICE = 64  # rows that a thread takes at once


def _type_addition(typingctx, array, index, value):
    """Make `add_atomically`: it adds a value to array[index], a vector of whole numbers, and returns what was there."""
    if not isinstance(array, types.Array) or array.ndim != 1:
        return None
    signature = array.dtype(array, types.intp, array.dtype)

    def generate(context, builder, signature, arguments):
        array_type = signature.args[0]
        view = context.make_array(array_type)(context, builder, arguments[0])
        pointer = cgutils.get_item_pointer(  # type: ignore[no-untyped-call]
            context, builder, array_type, view, [arguments[1]], wraparound=False
        )
        return builder.atomic_rmw("add", pointer, arguments[2], "monotonic")

    return signature, generate


add_atomically: Any = intrinsic(_type_addition)


@njit(cache=True, nogil=True)
def take_slice(reached, size):
    """Return the bounds of rows that no other thread has taken; both are `size` if none is left."""
    first = min(add_atomically(reached, 0, np.int64(SLICE)), size)
    return first, min(first + SLICE, size)
