#!/usr/bin/env python3
"""libtroupe-cuda.so was built, for every GPU it is meant for, and needs what it says it needs: machines without a GPU run the
kernels on an emulator, which would pass with the module left out.

    cuda_built.py MODULE CUOBJDUMP
"""
import collections
import pathlib
import re
import shutil
import subprocess
import sys

# cmake/cuda.cmake: machine code for both, and the older one's PTX for what is newer than either.
MACHINE_CODE, PTX = ["sm_80", "sm_90a"], ["sm_80"]


def listed(cuobjdump, option, module):
    """{architecture: how many files of code for it}, of lines such as `ELF file 1: libtroupe-cuda.1.sm_80.cubin`."""
    done = subprocess.run([cuobjdump, option, module], capture_output=True, text=True)  # fails where there is no code at all
    return collections.Counter(re.findall(r"^\w+ file +\d+: \S+\.(sm_\w+)\.\w+$", done.stdout, re.M))


def findings(module, cuobjdump):
    if not module.is_file():
        return [f"there is no {module}: it was configured without CUDA, or not built"]
    if not shutil.which(cuobjdump):
        return [f"there is no cuobjdump to look into it with: {cuobjdump}"]
    found = []
    machine_code, ptx = listed(cuobjdump, "--list-elf", module), listed(cuobjdump, "--list-ptx", module)
    for what, has, wanted in (("machine code", machine_code, MACHINE_CODE), ("PTX", ptx, PTX)):
        if sorted(has) != wanted:
            found.append(f"{what} for {sorted(has)}, not {wanted}")
    if len({*machine_code.values(), *ptx.values()}) > 1:
        found.append(f"not every source was compiled for each: machine code {dict(machine_code)}, PTX {dict(ptx)}")
    dynamic = subprocess.run(["readelf", "--dynamic", "--wide", module], check=True, capture_output=True, text=True).stdout
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
    if not any(re.fullmatch(r"libcublasLt\.so\.\d+", name) for name in needed):
        found.append(f"cuBLASLt is not among the libraries it needs: {needed}")
    for name in needed:
        if re.match(r"lib(cuda|cudart|nv\w+)\.so", name):
            found.append(f"it needs {name}, which not every machine has: the run-time is linked in, the driver found by it")
    return found


def main():
    module, cuobjdump = pathlib.Path(sys.argv[1]), sys.argv[2]
    found = findings(module, cuobjdump)
    print("\n".join(found) or f"{module.name}: {module.stat().st_size / 1e6:.1f} MB for {', '.join(MACHINE_CODE)}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
