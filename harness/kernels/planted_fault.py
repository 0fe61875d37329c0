"""Writes four bytes to GPU memory that nothing has allocated: what a memory checker must see.

`python -m harness.kernels.planted_fault` uses the CUDA driver alone, through ctypes.
"""

from __future__ import annotations

import ctypes

_PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry planted(.param .u64 place) {
  .reg .u64 at;
  ld.param.u64 at, [place];
  st.global.u32 [at], 7;
  ret;
}
"""
_ALLOCATED, _BEYOND = 256, 4096
"""Bytes allocated, and where the kernel writes: inside the page that the driver maps, so that the GPU does not mind."""


def main() -> None:
    """Runs the kernel once; raises RuntimeError or OSError where the driver or a GPU is missing."""
    driver = ctypes.CDLL("libcuda.so.1")
    context, module, kernel = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    memory = ctypes.c_uint64()
    _check(driver.cuInit(0))
    _check(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    _check(driver.cuCtxSetCurrent(context))
    _check(driver.cuModuleLoadData(ctypes.byref(module), _PTX))
    _check(driver.cuModuleGetFunction(ctypes.byref(kernel), module, b"planted"))
    _check(driver.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(_ALLOCATED)))
    place = ctypes.c_uint64(memory.value + _BEYOND)
    arguments = (ctypes.c_void_p * 1)(ctypes.addressof(place))
    _check(driver.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, arguments, None))
    driver.cuCtxSynchronize()


def _check(status: int) -> None:
    if status:
        raise RuntimeError(f"the CUDA driver answered with error {status}")


if __name__ == "__main__":
    main()
