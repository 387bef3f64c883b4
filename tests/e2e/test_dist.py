"""The folder that `cmake --install` makes, moved, and the file that deploy/pack.sh makes of it: programs, libraries and configs go
together and want nothing of the machine but glibc. Where the kernel lets us, they run with a root folder that holds just that:
neither this source tree nor a single package is there to help them."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import tarfile

import httpx
import pytest

from fleet import BIN, MODEL, ROOT, Program, chat_body, wait_until, whole_chat
from ports import free_port

PROGRAMS = ("troupe-gateway", "troupe-worker", "troupe-sim")
GLIBC = re.compile(r"(ld-linux-x86-64|lib(c|m|mvec|dl|pthread|rt|resolv|util|anl))\.so\.\d+")
GLIBC_MINOR_MAX = 36  # 2.36: Debian 12's; Ubuntu 24.04 has 2.39
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}  # no LD_LIBRARY_PATH, whatever the tests run under


def run(*command, code=0, **kwargs):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=100, **{"env": ENVIRONMENT, **kwargs})
    assert done.returncode == code, (command, done.returncode, done.stderr[-2000:])
    return done.stdout


@pytest.fixture(scope="module")
def moved(tmp_path_factory):
    """The installed folder, not where it was installed to: opt/troupe in what may become a root folder."""
    folder = tmp_path_factory.mktemp("dist")
    run("cmake", "--install", BIN.parent, "--prefix", "installed", cwd=folder)
    (folder / "else where/opt").mkdir(parents=True)
    return (folder / "installed").rename(folder / "else where/opt/troupe")


def elf_files(folder):
    files = [path for part in ("bin", "lib") for path in sorted((folder / part).iterdir()) if not path.is_symlink()]
    assert len(files) > len(PROGRAMS) + 20
    return files


def loaded(program):
    """What the dynamic loader would load for it: {name: path}."""
    text = run(program, env={**ENVIRONMENT, "LD_TRACE_LOADED_OBJECTS": "1"})
    assert "not found" not in text, text
    found = dict(re.findall(r"^\s*(\S+) => (/.+) \(0x\w+\)$", text, re.M))
    loader = re.search(r"^\s*(/\S*ld-linux\S+) \(0x", text, re.M)
    return {**found, pathlib.Path(loader[1]).name: loader[1]} if loader else found


def check_stands_alone(folder):
    for program in PROGRAMS:
        libraries = loaded(folder / "bin" / program)
        outside = {name for name, path in libraries.items() if not pathlib.Path(path).resolve().is_relative_to(folder)}
        assert outside and all(map(GLIBC.fullmatch, outside)), f"{program} takes from the machine: {sorted(outside)}"
        assert {"libstdc++.so.6", "libgcc_s.so.1"} <= set(libraries) - outside
        assert run(folder / "bin" / program, "--version", cwd="/").startswith(f"{program} ")
        assert "--help" in run(folder / "bin" / program, "--help", cwd="/")


def test_every_program_runs_on_the_folders_own_libraries(moved):
    check_stands_alone(moved)


def test_no_search_path_leads_out_of_the_folder(moved):
    for path in elf_files(moved):
        dynamic = run("readelf", "--dynamic", "--wide", path)
        paths = re.findall(r"\((RPATH|RUNPATH)\)\s+Library \w+: \[(.*)\]", dynamic)
        # A RUNPATH, of a library too, would keep the loader from looking where the program says: see cmake/dist.cmake.
        allowed = [[("RPATH", "$ORIGIN/../lib")]] if path.parent.name == "bin" else [[], [("RPATH", "$ORIGIN")]]
        if path.name == "libtroupe-cuda.so":  # cuBLASLt is the machine's, and not everywhere the loader looks
            allowed = [[("RPATH", "$ORIGIN:/usr/local/cuda/lib64")]]
        assert paths in allowed, (path, paths)
        assert str(ROOT) not in dynamic, path


def test_a_glibc_of_2_36_is_new_enough(moved):
    minors = {int(minor): path.name for path in elf_files(moved)
              for minor in re.findall(r"Name: GLIBC_2\.(\d+)", run("readelf", "--version-info", "--wide", path))}
    assert 17 < max(minors) <= GLIBC_MINOR_MAX, minors[max(minors)]


def test_no_stack_is_executable(moved):
    """glibc 2.41 and newer refuse to load what wants one."""
    for path in elf_files(moved):
        assert re.search(r"GNU_STACK .* RW +0x", run("readelf", "--segments", "--wide", path)), path


def test_configs_are_all_there(moved):
    tracked = run("git", "-c", f"safe.directory={ROOT}", "ls-files", "configs", cwd=ROOT).split()
    assert len(tracked) > 20
    for name in tracked:
        assert (moved / "share/troupe" / name).read_bytes() == (ROOT / name).read_bytes(), name
    licences = [path.name for path in (moved / "share/troupe/licenses").iterdir()]
    assert any(name.startswith("libdnnl") for name in licences) and len(licences) > 10


def with_root(root, *command):
    """The command, run with `root` as its root folder and with /proc in it; it keeps its process id."""
    script = 'mount --rbind /proc "$0/proc" && exec chroot "$0" "$@"'
    own_users = () if os.geteuid() == 0 else ("--map-root-user",)
    return ["env", "-i", f"PATH={ENVIRONMENT['PATH']}", "unshare", *own_users, "--mount", "sh", "-c", script, root, *command]


def inside(bare, program, *arguments):
    return with_root(bare, f"/opt/troupe/bin/{program}", *arguments)


@pytest.fixture(scope="module")
def bare(moved):
    """A root folder with glibc, /proc and the moved folder."""
    try:
        run(*with_root("/", "/bin/true"))
    except AssertionError as error:
        pytest.skip(f"NOT TESTED that the moved folder needs nothing else: no root folder of its own here: {error}")
    root = moved.parents[1]
    for program in PROGRAMS:
        for name, path in loaded(moved / "bin" / program).items():
            if GLIBC.fullmatch(name):
                (root / path[1:]).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, root / path[1:])
    (root / "proc").mkdir()
    return root


def test_a_chat_is_answered_with_nothing_else_on_the_machine(bare, logs):
    share, port, gateway_port, metrics_port = "/opt/troupe/share/troupe/configs", free_port(), free_port(), free_port()
    url, metrics_url = f"http://127.0.0.1:{gateway_port}", f"http://127.0.0.1:{metrics_port}"
    commands = {
        "worker": (inside(bare, "troupe-worker", "--config", f"{share}/worker.yaml", "--model", f"{share}/{MODEL}",
                          "--device", "cpu", "--port", port, "--threads", 1), f"http://127.0.0.1:{port}/readyz"),
        "gateway": (inside(bare, "troupe-gateway", "--config", f"{share}/gateway.yaml", "--port", gateway_port,
                           "--metrics-port", metrics_port, "--worker-urls", f"http://127.0.0.1:{port}"), f"{metrics_url}/readyz"),
    }
    programs = []
    try:
        for name, (command, ready_url) in commands.items():
            programs.append(Program(name, command, logs, ready_url))
            programs[-1].wait_ready()

        def worker_is_known():
            return all(worker["models"] for worker in httpx.get(f"{metrics_url}/admin/workers", timeout=5).json()["workers"])

        wait_until(worker_is_known, 15, "the gateway has heard of the worker")
        card = ("You are playing Newton.\nName: Newton\nRole: physicist\nAge: 44\nHome: Woolsor\nLikes: quiet mornings\n"
                "Companion: a one-eyed cat\nAlways answer the user in character.")
        answer = whole_chat(url, chat_body([{"role": "system", "content": card}, {"role": "user", "content": "Who travels with you?"}]))
        assert "one-eyed cat" in answer.text
    finally:
        for program in reversed(programs):
            program.stop()


REPLAY = ("replay", "--profile", "cpu-demo", "--personas", 20, "--rate", 4, "--duration-s", 5, "--nodes", 2, "--report", "-")


def test_a_profile_is_found_by_name_and_the_replay_is_that_of_the_source_tree(bare):
    report = run(*inside(bare, "troupe-sim", *REPLAY))
    assert json.loads(report)["requests"] > 5
    assert report == run(BIN / "troupe-sim", *REPLAY)
    run(*inside(bare, "troupe-worker", "--device", "sim", "--sim-profile", "cpu-demo", "--check-config"))


def test_an_unknown_profile_is_refused_with_those_of_the_folder(bare):
    done = subprocess.run(list(map(str, inside(bare, "troupe-sim", "replay", "--profile", "no-such"))), capture_output=True, text=True, timeout=20)
    assert done.returncode == 2 and "in /opt/troupe/share/troupe/configs/sim, which has: " in done.stderr, done.stderr


def test_the_packed_file_is_the_folder_stripped_and_the_same_each_time(moved, tmp_path):
    packed = [tmp_path / "1.tar.xz", tmp_path / "2.tar.xz"]
    for path, mask in zip(packed, (0o022, 0o077)):
        said = run("deploy/pack.sh", "--level", 0, "--output", path, cwd=ROOT, env=os.environ, umask=mask)
        assert f"{path}: " in said and "with the repository" in said
    assert packed[0].read_bytes() == packed[1].read_bytes()
    with tarfile.open(packed[0]) as archive:
        members = archive.getmembers()
    names = [member.name for member in members]
    assert names == sorted(names, key=lambda name: name.split("/")) and set(names) == {"troupe"} | {
        f"troupe/{path.relative_to(moved)}" for path in moved.rglob("*")}
    assert {(member.uid, member.gid, member.uname, member.gname) for member in members} == {(0, 0, "", "")}
    assert len({member.mtime for member in members}) == 1
    assert {member.mode & 0o777 for member in members} <= {0o755, 0o644, 0o777}
    run("tar", "-xf", packed[0], cwd=tmp_path)
    unpacked = tmp_path / "troupe"
    check_stands_alone(unpacked)
    for program in PROGRAMS:
        assert (unpacked / "bin" / program).stat().st_size < (moved / "bin" / program).stat().st_size


@pytest.mark.parametrize("arguments,word", [(("--level", "10"), "--level"), (("--output", "/nowhere/x"), "/nowhere"), (("--fast",), "--fast"),
                                            (("--level",), "--level")])
def test_what_is_wrong_with_packing_is_named(arguments, word):
    done = subprocess.run([ROOT / "deploy/pack.sh", *arguments], capture_output=True, text=True, timeout=20)
    assert done.returncode == 2 and word in done.stderr and not done.stdout
    assert "--output FILE" in run(ROOT / "deploy/pack.sh", "--help")
