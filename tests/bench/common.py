"""What the benches share: processes pinned to a core and always stopped, CPU time, free ports, the table of results."""
import contextlib
import json
import os
import pathlib
import platform
import signal
import subprocess
import sys
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = ROOT / "build/bin"
RESULTS = ROOT / "tests/bench/results"
sys.path.insert(0, str(ROOT / "tests/e2e"))
from ports import free_port  # noqa: E402


def free_ports(count):
    return [free_port() for _ in range(count)]


@contextlib.contextmanager
def running(command, core=None, log=None):
    """The process, in a group of its own, pinned to `core`; stopped at the end (SIGTERM, then SIGKILL)."""
    command = [str(part) for part in command]
    if core is not None:
        command = ["taskset", "-c", str(core)] + command
    out = open(log, "wb") if log else subprocess.DEVNULL
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True, cwd=ROOT)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def wait_http(url, seconds=60):
    end = time.monotonic() + seconds
    while True:
        try:
            with urllib.request.urlopen(url, timeout=2) as answer:
                if answer.status == 200:
                    return
        except OSError:
            pass
        if time.monotonic() > end:
            raise SystemExit(f"error: {url} did not answer 200 within {seconds} s")
        time.sleep(0.1)


def threads(pid):
    """/proc folders of all threads of a process and of its children that still run."""
    pids = [pid]
    while pids:
        current = pids.pop()
        for task in os.listdir(f"/proc/{current}/task"):
            folder = f"/proc/{current}/task/{task}"
            with contextlib.suppress(FileNotFoundError):  # ended meanwhile
                with open(f"{folder}/children") as file:
                    pids += [int(child) for child in file.read().split()]
                yield folder


def cpu_seconds(pid):
    """User and system time of a process and its children that still run, by the scheduler's own clock (nanoseconds). Threads that have
    ended are not in it: for programs whose threads stay."""
    total = 0.0
    for folder in threads(pid):
        with contextlib.suppress(FileNotFoundError), open(f"{folder}/schedstat") as file:
            total += int(file.read().split()[0]) / 1e9
    return total


def cpu_ticks(pid):
    """(User, in the kernel): the same as the clock's ticks saw it, 10 ms each: for shares of some seconds."""
    user = kernel = 0
    for folder in threads(pid):
        with contextlib.suppress(FileNotFoundError), open(f"{folder}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
            user, kernel = user + int(fields[11]), kernel + int(fields[12])
    return user, kernel


def machine():
    model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
    return f"{model}, {os.cpu_count()} cores, Linux {platform.release().split('-')[0]}"


def save(name, title, command, columns, rows, notes, parts=(), date=None, on=None):
    """Writes results/NAME.json, prints the table. `parts`: tables that belong to it, measured at other times. `date` and `on`: when and on
    which machine it was measured (None: today, on this one)."""
    RESULTS.mkdir(exist_ok=True)
    result = dict(title=title, command=command, date=date or time.strftime("%Y-%m-%d"), machine=on or machine(), columns=columns, rows=rows, notes=notes)
    if parts:
        result["parts"] = list(parts)
    (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    print(as_markdown(result))


def as_markdown(result, heading="##"):
    lines = [f"{heading} {result['title']}", "", f"`{result['command']}` · {result['date']} · {result['machine']}", "",
             "| " + " | ".join(result["columns"]) + " |", "|" + " --- |" * len(result["columns"])]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in result["rows"]]
    text = "\n".join(lines + [""] + [f"- {note}" for note in result["notes"]]) + "\n"
    return "\n".join([text] + [as_markdown(part, heading + "#") for part in result.get("parts", [])])
