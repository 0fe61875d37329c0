"""SASS text, as `nvdisasm` or `cuobjdump -sass` print it, as kernels in the common form."""

from harness.audit.sass.reader import SassFile, read_sass

__all__ = ["SassFile", "read_sass"]
