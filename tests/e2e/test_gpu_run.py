"""tests/gpu/run.sh and bench.sh: with the emulated module where the GPU's would be it runs whole and passes; it skips without a GPU, and fails
where a kernel is wrong."""
import json
import os
import shutil
import subprocess
import sys
import tarfile

import pytest

from fleet import BIN, ROOT

sys.path.insert(0, str(ROOT / "tests/gpu"))
import bench  # noqa: E402

SCRIPT, BENCH = ROOT / "tests/gpu/run.sh", ROOT / "tests/gpu/bench.sh"
# Time that is enough behind all other tests, and as much work as shows that every part runs and notices: all kernels run on the
# emulator in unit.cuda_test, the longest of them there alone.
EMULATION = {"TROUPE_GPU_KERNELS_S": "1800", "TROUPE_GPU_SUITE_S": "900", "TROUPE_GPU_SERVED_S": "1800", "TROUPE_GPU_PROMPTS": "3",
             "TROUPE_GPU_WITHOUT": "CudaSample.DrawsWhatAFullSortDraws:*.IsItsFormulaInEveryShapeOfStep/bfloat16*:CudaCascade.GroupsOfMany*:CudaPrefill.Tiles*",
             "TROUPE_GPU_GRAPHS_S": "1800", "TROUPE_GPU_GRAPHS": "--model tiny --layers 1 --vocabulary 512 --sizes 1,34,3 --keys 17 --steps 2 --threads 1 --first-guess-only",
             "TROUPE_GPU_SERVED": "--personas 2 --users 2 --sentences 3 --tokens 6 --max-num-seqs 4 --max-num-batched-tokens 32 --gpu-memory-utilization 0.2"}
EMULATED = BIN.parent / "lib/libtroupe-cuda-emulated.so"


def packed(folder, module):
    """What deploy/pack.sh --gpu-tests makes, of the build's programs and another module."""
    tree = folder / "troupe"
    for part in ("bin", "lib", "share/troupe/configs"):
        (tree / part).mkdir(parents=True)
    for program in ("troupe-worker", "cuda_gpu_test", "model_bench"):
        shutil.copy(BIN / program, tree / "bin")
    shutil.copy(module, tree / "lib/libtroupe-cuda.so")
    shutil.copytree(ROOT / "configs/demo-model", tree / "share/troupe/configs/demo-model")
    with tarfile.open(folder / "dist.tar", "w") as archive:
        archive.add(tree, "troupe")
    return folder / "dist.tar"


def machine(folder, gpu=True):
    """One with an nvidia-smi that lists a GPU or none, and no compute-sanitizer: its environment."""
    tools = folder / "tools"
    tools.mkdir(exist_ok=True)
    (tools / "nvidia-smi").write_text("#!/bin/sh\n" + ("echo 'GPU 0: emulated'\n" if gpu else "exit 9\n"))
    (tools / "nvidia-smi").chmod(0o755)
    if gpu:
        shutil.copy(EMULATED, tools / "libcuda.so.1")  # the worker asks whether there is a driver
    return {**os.environ, "PATH": f"{tools}:/usr/bin:/bin", "LD_LIBRARY_PATH": str(tools), **EMULATION}


def run(folder, *command, gpu=True):
    return subprocess.run(["bash", *command], env=machine(folder, gpu), capture_output=True, text=True, timeout=3000)


def test_without_a_gpu_it_skips_and_says_so(tmp_path):
    ended = run(tmp_path, SCRIPT, tmp_path / "nowhere", gpu=False)
    assert ended.returncode == 0 and ended.stdout.startswith("SKIPPED: no GPU here"), ended


def test_with_the_emulated_module_every_part_passes(tmp_path):
    ended = run(tmp_path, SCRIPT, packed(tmp_path, EMULATED))
    print(ended.stdout)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    for part in ("kernels: passed", "model: passed", "graphs: passed", "served: passed", "memcheck: SKIPPED", "racecheck: SKIPPED", "synccheck: SKIPPED"):
        assert part in ended.stdout, ended.stdout + ended.stderr
    assert ended.stdout.count("log-probabilities, worst difference") == 4, ended.stdout
    assert ended.stdout.count("6 of 6 as kernel by kernel") == 3, ended.stdout
    assert ended.stdout.count("device memory in use") == 2 and "4 of 4 answers as of the CPU" in ended.stdout, ended.stdout
    assert ended.stdout.count("answers begin as of the CPU") == 3, ended.stdout


def test_without_a_module_that_opens_it_fails(tmp_path):
    ended = run(tmp_path, SCRIPT, packed(tmp_path, BIN / "troupe-sim"))
    assert ended.returncode == 1, ended.stdout + ended.stderr
    for part in ("kernels", "model", "graphs", "served"):
        assert f"{part}: FAILED" in ended.stdout, ended.stdout + ended.stderr


def started(folder, gpu, *flags):
    """A worker with a module that cannot be opened: how it ended (0: it was stopped once it served) and its log."""
    packed(folder, BIN / "troupe-sim")
    tree = folder / "troupe"
    worker = subprocess.Popen([tree / "bin/troupe-worker", "--model", tree / "share/troupe/configs/demo-model", "--port", "0", "--kv-cache-tokens", "2048", *flags],
                              env=machine(folder, gpu), stderr=subprocess.PIPE, text=True)
    lines = []
    for line in worker.stderr:
        lines.append(line)
        if "event=listening" in line:
            worker.terminate()
            break
    return worker.wait(60), lines


def test_where_there_is_a_driver_but_no_module_it_does_not_start_and_says_what_would(tmp_path):
    code, lines = started(tmp_path, True)
    assert code == 2, lines
    assert all(word in "".join(lines) for word in ("--device auto: this machine's GPU cannot be used", "libtroupe-cuda.so", "--device cpu", "--allow-cpu")), lines


@pytest.mark.parametrize("gpu, flags", [(True, ["--allow-cpu"]), (True, ["--device", "cpu"]), (False, [])])
def test_the_cpu_serves_where_it_is_allowed_or_there_is_no_gpu(tmp_path, gpu, flags):
    code, lines = started(tmp_path, gpu, *flags)
    assert code == 0, lines
    said = [line for line in lines if "event=device_unusable" in line]
    assert len(said) == (flags == ["--allow-cpu"]) and all("libtroupe-cuda.so" in line and "WARN" in line.upper() for line in said), lines


def test_a_missing_archive_is_named(tmp_path):
    ended = run(tmp_path, SCRIPT, tmp_path / "nowhere.tar.xz")
    assert ended.returncode == 2 and "nowhere.tar.xz: deploy/pack.sh --gpu-tests makes it" in ended.stderr, ended


def test_the_bench_measures_a_small_model_on_the_emulated_module(tmp_path):
    rows = tmp_path / "rows.json"
    ended = run(tmp_path, BENCH, "--dist", packed(tmp_path, EMULATED), "decode", "gaps", "prefill", "ttft", "--models", "tiny", "--output", rows)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    rows = json.loads(rows.read_text())
    assert [row["bench"] for row in rows] == ["decode", "decode", "decode", "gaps", "prefill", "ttft"]
    assert all("cuda emulated" in row["runner"] for row in rows), rows
    # (The emulator's events tell no time.)
    assert all(row["seconds"] > 0 and row["floor_seconds"] > 0 for row in rows if row["bench"] != "gaps"), rows
    made = next(int(row["more"].split("graphs made anew: ")[1]) for row in rows if row["bench"] == "gaps")
    assert 1 <= made <= 4, rows  # of more steps
    assert run(tmp_path, BENCH, "decode", gpu=False).stdout.startswith("SKIPPED: no GPU here")


def test_what_the_bench_has_no_room_or_no_sample_for_is_said(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(bench.MODELS["tiny"]))
    asked = subprocess.run([BIN / "model_bench", folder, "1", "cpu"], input="decode 256 4000 2\ndecode 2 20 1\n", capture_output=True, text=True, timeout=60)
    assert asked.returncode == 0 and asked.stdout.splitlines()[1] == "nan" and float(asked.stdout.splitlines()[2]) > 0, asked
    ended = run(tmp_path, BENCH, "--dist", packed(tmp_path, EMULATED), "offline", "--models", "tiny", "--lengths", tmp_path / "nowhere.csv")
    assert ended.returncode == 2 and "offline: there is no" in ended.stderr and "nowhere.csv" in ended.stderr, ended


def test_other_engines_are_left_out_where_there_are_none(tmp_path):
    """(With them: `bench.sh peers … --peers-python PYTHON --peers-device cpu`.)"""
    empty = tmp_path / "empty"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", empty], check=True)
    ended = run(tmp_path, BENCH, "--dist", packed(tmp_path, EMULATED), "peers", "--models", "tiny", "--peers-python", empty / "bin/python")
    assert ended.returncode == 0 and "peers SKIPPED" in ended.stderr and "No module named 'torch'" in ended.stderr, ended


def test_ops_are_measured_on_the_emulated_module():
    ops = subprocess.run([BIN / "device_bench", EMULATED, "small"], capture_output=True, text=True, timeout=900)
    assert ops.returncode == 0, ops
    for op in ("rms_norm", "silu_mul", "embed", "rope_kv", "matmul", "matmul, swap AB", "matmul, library", "decode", "decode, lanes", "prefill", "prefill, warpgroups", "prefill, in turn", "cascade", "normed mlp", "normed mlp, swap AB"):
        assert f"| {op} |" in ops.stdout, ops.stdout


def test_the_bench_starts_and_asks_a_worker_on_the_emulated_module(tmp_path):
    rows, lengths = tmp_path / "rows.json", tmp_path / "lengths.csv"
    lengths.write_text("id,in_llama_spm,out_llama_spm\n" + "".join(f"{i},{5 + i},{2 + i % 3}\n" for i in range(6)))
    ended = run(tmp_path, BENCH, "--dist", packed(tmp_path, EMULATED), "cascade", "coldstart", "offline", "batching", "--models", "tiny", "--threads", "2", "--lengths", lengths,
                "--output", rows)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    rows = {(row["bench"], row["work"]): row for row in json.loads(rows.read_text())}
    assert [bench for bench, _ in rows] == ["cascade", "cascade", "coldstart", "coldstart", "offline"] + ["batching"] * 3
    assert all(row["seconds"] > 0 for row in rows.values()), rows
    assert "× as fast as with a read each" in rows["cascade", "8 requests, 2 personas of 256, 20 own"]["more"]
    assert "requests/s" in rows["offline", "6 requests, 8 at once"]["more"]
    for steps in ("merged", "separate", "static"):
        assert "p99 of TTFT and a token" in rows["batching", f"{steps} steps"]["more"], rows
