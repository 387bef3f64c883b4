import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "fixtures")]

from fleet import Fleet  # noqa: E402


@pytest.fixture(scope="module")
def logs(tmp_path_factory, request):
    return tmp_path_factory.mktemp(request.module.__name__)


@pytest.fixture
def start(logs):
    """start(workers=…, gateway=…, …): a fleet of the test's own, stopped when the test ends."""
    started = []

    def start_fleet(**kwargs):
        fleet = Fleet(logs, **kwargs).__enter__()
        started.append(fleet)
        return fleet

    yield start_fleet
    for fleet in started:
        fleet.__exit__(None, None, None)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """A failed test shows the end of every program's log."""
    report = (yield).get_result()
    if not report.failed:
        return
    folder = item.funcargs.get("logs")
    for path in sorted(folder.rglob("*.log")) if folder else []:
        tail = "\n".join(path.read_text("utf-8", "replace").splitlines()[-12:])
        report.sections.append((f"log of {path.name}", tail))
