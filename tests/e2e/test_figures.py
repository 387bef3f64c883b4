"""What tests measured is seen where all pass, and ctest's closing lines stay the last."""
import pathlib
import subprocess
import sys

import figures

ENDS = "\n100% tests passed, 0 tests failed out of 2\n\nLabel Time Summary:\ne2e    =   3.2 sec*proc (2 tests)\n\nTotal Test time (real) =   3.21 sec\n"
BEGINS = "Test project /build\n1/2 Test #7: e2e.drain ......   Passed    1.20 sec\n2/2 Test #8: e2e.resume .....   Passed    2.00 sec\n"


def shown(path, text, *arguments):
    command = [sys.executable, pathlib.Path(figures.__file__), path, *arguments]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True, timeout=30).stdout


def test_figures_stand_before_the_closing_lines(tmp_path, monkeypatch):
    path = tmp_path / "figures.jsonl"
    monkeypatch.setenv("TROUPE_FIGURES", str(path))
    figures.figure("longest pause", "0.31 s", "< 1 s")
    figures.figure("hits", ".91")
    said = shown(path, BEGINS + ENDS)
    assert said.startswith(BEGINS) and said.endswith("goal\nfigures | longest pause | 0.31 s | < 1 s\nfigures | hits          | .91    |\n\n" + ENDS.lstrip("\n")), said


def test_without_figures_nothing_is_added(tmp_path, monkeypatch):
    monkeypatch.delenv("TROUPE_FIGURES", raising=False)
    figures.figure("hits", ".91")
    assert list(tmp_path.iterdir()) == []
    for text in (BEGINS + ENDS, BEGINS, "No tests were found!!!\n", ""):
        assert shown(tmp_path / "figures.jsonl", text) == text


def test_the_longest_tests_and_all_builds_stand_before_the_figures(tmp_path):
    begins = (" 1/12 Test  #3: build.asan .......   Passed    0.50 sec\n 2/12 Test #10: e2e.drain ........***Failed  Error regular expression   61.20 sec\n"
              "10/12 Test #99: unit.core_test ...   Passed    2.75 sec\n")
    said = shown(tmp_path / "figures.jsonl", begins + ENDS, "2")
    assert said == (begins + "\nseconds of the 2 longest tests, of 3 that took 64:\n    61.2  e2e.drain\n     2.8  unit.core_test\n"
                    "     0.5  build.asan\n\n" + ENDS.lstrip("\n")), said
