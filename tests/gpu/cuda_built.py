#!/usr/bin/env python3
"""libtroupe-cuda.so was built, for every GPU it is meant for, and needs what it says it needs: machines without a GPU run the
kernels on an emulator, which would pass with the module left out.

    cuda_built.py MODULE CUOBJDUMP ARCHITECTURE…

ARCHITECTURE: as CMAKE_CUDA_ARCHITECTURES has it: 80 is machine code and PTX, 90a-real the one, 90-virtual the other.
"""
import collections
import pathlib
import re
import shutil
import subprocess
import sys


def listed(cuobjdump, option, module):
    """{architecture: how many files of code for it}, of lines such as `ELF file 1: libtroupe-cuda.1.sm_80.cubin`."""
    done = subprocess.run([cuobjdump, option, module], capture_output=True, text=True)  # fails where there is no code at all
    return collections.Counter(re.findall(r"^\w+ file +\d+: \S+\.(sm_\w+)\.\w+$", done.stdout, re.M))


def findings(module, cuobjdump, architectures):
    if not module.is_file():
        return [f"there is no {module}: it was configured without CUDA, or not built"]
    if not shutil.which(cuobjdump):
        return [f"there is no cuobjdump to look into it with: {cuobjdump}"]
    found = []
    machine_code, ptx = listed(cuobjdump, "--list-elf", module), listed(cuobjdump, "--list-ptx", module)
    for what, has, other in (("machine code", machine_code, "-virtual"), ("PTX", ptx, "-real")):
        wanted = sorted("sm_" + name.split("-")[0] for name in architectures if not name.endswith(other))
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
    module, cuobjdump, architectures = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
    if not architectures:
        raise SystemExit(__doc__)
    found = findings(module, cuobjdump, architectures)
    print("\n".join(found) or f"{module.name}: {module.stat().st_size / 1e6:.1f} MB for {', '.join(architectures)}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
