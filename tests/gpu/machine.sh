# What run.sh and bench.sh ask of a machine that may have nothing but a driver and CUDA's libraries.

has_gpu() { case $(nvidia-smi -L 2> /dev/null || true) in *GPU*) ;; *) return 1 ;; esac; }

unpack() {  # unpack ARCHIVE FOLDER
  if [[ $1 != *.xz ]] || command -v xz > /dev/null; then tar -C "$2" -xf "$1"; else
    python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' "$1" "$2"
  fi
}

# Where only a Python package has brought cuBLASLt the loader does not find it by itself.
find_cublas() {
  local name=libcublasLt.so.13 known found
  known=$(PATH=$PATH:/usr/sbin:/sbin ldconfig -p 2> /dev/null || true)
  if [ -e "/usr/local/cuda/lib64/$name" ] || [[ $known == *"$name"* ]]; then return; fi
  found=$(find / \( -path /proc -o -path /sys -o -path /dev \) -prune -o -name "$name" -print -quit 2> /dev/null || true)
  if [ -z "$found" ]; then echo "note: there is no $name on this machine" >&2; return; fi
  export LD_LIBRARY_PATH=${found%/*}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
}
