#!/usr/bin/env python3
"""Which files cmake/unity.py compiles as one, and under which names. (Run by ctest as tidy.unity_test.)"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Unity(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def batches(self, batch=48, **files):
        """[[line]] of each batch of files, given by their code"""
        for name, code in files.items():
            (self.folder / f"{name}.cc").write_text(code)
        subprocess.run([sys.executable, ROOT / "cmake/unity.py", str(batch), "out/x", *(f"{name}.cc" for name in files)], cwd=self.folder, check=True)
        return [(self.folder / path).read_text().splitlines() for path in self.lists()["written"]]

    def lists(self):
        found = re.findall(r'set\((\w+) "(.*)"\)', (self.folder / "out/x.cmake").read_text())
        return {name: words.split(";") for name, words in found}

    def test_a_batch_has_no_more_files_than_it_may_and_none_is_left_from_before(self):
        self.assertEqual(self.batches(1, a="int a;", b="int b;"), [['#include "a.cc"'], ['#include "b.cc"']])
        self.assertEqual(self.batches(2, a="int a;", b="int b;"), [['#include "a.cc"', '#include "b.cc"']])
        self.assertEqual(sorted(os.listdir(self.folder / "out")), ["x.cmake", "x_0.cc"])

    def test_cmake_is_told_what_it_asked_for_and_on_what_that_depends(self):
        (self.folder / "own.h").write_text("int words_of_a_header();")
        own = '#include "own.h"\nnamespace { int kMax = 1; }'
        self.batches(2, a=own, b=own)
        lists = self.lists()
        self.assertEqual(lists["asked"], ["2", "a.cc", "b.cc"])
        self.assertEqual({pathlib.Path(path).name for path in lists["read"]}, {"unity.py", "a.cc", "b.cc", "own.h"})
        self.assertTrue(all(os.path.isabs(path) for path in lists["read"]))

    def test_an_own_name_is_another_one_in_the_second_file(self):
        own = "namespace {\nconstexpr int kMax = 3;\nint sum_of(int a) { return a; }\n}\n"
        self.assertEqual(self.batches(a=own, b="namespace {\nconstexpr int kMax = 4;\n}\n", c="static int sum_of() { return 1; }"),
                         [['#include "a.cc"', "#define kMax kMax_1", '#include "b.cc"', "#undef kMax",
                           "#define sum_of sum_of_2", '#include "c.cc"', "#undef sum_of"]])

    def test_what_is_made_of_them_compiles(self):
        own = 'namespace {{ struct Row {{ int a; }}; const char* text_of(Row) {{ return "text_of"; }} int kRows = {0}; }}\n'
        (line,) = self.batches(a=own.format(1), b=own.format(2) + "int both() { return kRows + text_of(Row{2})[0]; }")
        self.assertIn("#define text_of text_of_1", line)
        subprocess.run(["g++", "-std=c++20", "-I", self.folder, "-fsyntax-only", self.folder / "out/x_0.cc"], check=True)

    def test_where_a_macro_would_reach_others_names_the_files_stay_apart(self):
        (self.folder / "h.h").write_text("struct Row {};")
        own = "namespace {\nstruct Row { int a; };\nconstexpr int kMax = 3;\n}\n"
        for other in ('#include "h.h"\nnamespace {\nstruct Row { int a; };\n}', "namespace {\nint kMax;\nint x = other::kMax;\n}",
                      "#define kMax 3\n", "namespace {\nclass Row : public Test {};\nTEST_F(Row, Grows) {}\n}", "namespace {\nstruct Row {};\n}\nTEST(Row, Is) {}\n",
                      "namespace {\nint kMax;\n}\nTEST(Bounds, kMax) {}\n"):
            self.assertEqual(len(self.batches(a=own, b=other)), 2, other)
        plain = "namespace {\nint seconds() { return 1; }\n}"
        self.assertEqual(len(self.batches(a=plain, b=plain)), 2, "a word that a system's header is likely to have")

    def test_one_alias_may_stand_in_both(self):
        self.assertEqual(len(self.batches(a="namespace {\nusing Kind = A::Kind;\n}", b="namespace {\nusing Kind = A::Kind;\n}")), 1)
        self.assertEqual(len(self.batches(a="namespace {\nusing Kind = A::Kind;\n}", b="namespace {\nusing Kind = B::Kind;\nKind x = C::Kind;\n}")), 2)


if __name__ == "__main__":
    unittest.main()
