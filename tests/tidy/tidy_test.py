#!/usr/bin/env python3
"""Holds tidy.py to its word: every rule finds the thing it is there for, and leaves good code alone. And measure.py: it counts right."""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

import file_by_file
import measure
import shape
import source
import tidy


def over(rule, *texts, **named):
    """The counts over its budget that a rule of shape.py finds in files a.cc, b.cc, … of texts, or in those named."""
    files = {f"gateway/{chr(ord('a') + i)}.cc": text for i, text in enumerate(texts)} | named.get("files", {})
    codes = {path: source.strip_code(text) for path, text in files.items()}
    return {key: count for key, (count, _, _) in rule(files, codes).items()}


def ratcheted(ratchet, files):
    tidy.findings.clear()
    counts = shape.check(tidy.report, ratchet, files, {path: source.strip_code(text) for path, text in files.items()})
    return list(tidy.findings), counts


def found(check, *args):
    tidy.findings.clear()
    check(*args)
    return list(tidy.findings)


class Rules(unittest.TestCase):
    def test_dependency_rules(self):
        bad = {"gateway/route/x.h": '#include "common/net/task.h"', "kernels/x.cc": '#include "worker/engine/engine.h"',
               "common/core/x.h": '#include "common/net/task.h"', "worker/model/x.cc": '#include "common/core/nowhere.h"',
               "gateway/proxy/proxy.cc": '#include "worker/engine/engine.h"', "common/core/y.h": "#include <boost/asio/post.hpp>",
               "worker/http/server.cc": "#include <boost/beast/http.hpp>", "worker/model/y.cc": '#include "kernels/cpu/backend.h"',
               "worker/z.cc": "#include <cuda_runtime.h>",
               "kernels/ops/embed.h": '#include "kernels/kernels.h"', "kernels/host/x.h": '#include "kernels/backends.h"',
               "kernels/cuda/device/x.h": '#include "kernels/cuda/step/step_graphs.h"',
               "kernels/cuda/ops/x.cu": '#include "kernels/cuda/gemm/gemm_kernels.h"'}
        for path, text in bad.items():
            self.assertTrue(found(tidy.check_includes, path, text + "\n"), path)
        good = {"gateway/proxy/proxy.cc": '#include "common/net/task.h"', "worker/model/x.cc": '#include "kernels/kernels.h"',
                "common/core/x.cc": '#include "absl/status/status.h"', "kernels/kernels.cc": '#include "kernels/tensor.h"'}
        for path, text in good.items():
            self.assertEqual(found(tidy.check_includes, path, text + "\n"), [], path)

    def test_scripts_can_be_run(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text, mode in (("a.py", "#!/usr/bin/env python3\n", 0o644), ("b.py", "#!/usr/bin/env python3\n", 0o755), ("c.py", "import os\n", 0o644)):
                (root / name).write_text(text)
                (root / name).chmod(mode)
            wrong = found(tidy.check_scripts, ["a.py", "b.py", "c.py"], root)
            self.assertEqual(len(wrong), 1)
            self.assertIn("a.py", wrong[0])

    def test_names_beside_a_path_are_in_that_file(self):
        codes = {"gateway/a.cc": "int methods_of(int);", "gateway/b.cc": "int other;"}
        self.assertEqual(found(tidy.check_names_in_pages, {"x.md": "`methods_of` (`gateway/a.cc`)"}, codes), [])
        self.assertTrue(found(tidy.check_names_in_pages, {"x.md": "`methods_of` (`gateway/b.cc`)"}, codes))

    def test_coroutine_rules(self):
        bad = ["co_await send({.a = 1});", "co_await send(x, {1, 2});", "co_await send(Options{.a = 1});", "auto x = ok ? co_await f() : 1;",
               "spawn([this]() -> Task<void> { co_return; });", "auto x = Pair{co_await f(), 2};", "co_await send(Options{});",
               "spawn([this] { co_await f(); });"]
        for code in bad:
            self.assertTrue(found(tidy.check_words, "common/net/x.cc", code), code)
        good = ["co_await send(options);", "auto answer = co_await client.send(request, deadline);", "if (co_await f()) { g(); }",
                "while (true) { co_await step(); }", "auto x = a ? b : c;", "co_await asio::async_write(socket, buffers, use_task);"]
        for code in good:
            self.assertEqual(found(tidy.check_words, "common/net/x.cc", code), [], code)

    def test_purity(self):
        for code in ["#include <thread>", "auto t = Clock::now();", "std::mt19937 rng;", "thread_local int x;", "static int count = 0;"]:
            self.assertTrue(found(tidy.check_words, "gateway/route/x.cc", code + "\n"), code)
            self.assertEqual(found(tidy.check_words, "gateway/x.cc", code + "\n"), [], code)
        for code in ["static constexpr int kMax = 3;", "static Status check(int x) {\n}", "auto at = now + timeout;"]:
            self.assertEqual(found(tidy.check_words, "gateway/route/x.cc", code + "\n"), [], code)

    def test_words_in_comments_and_strings_do_not_count(self):
        self.assertEqual(found(tidy.check_words, "a.cc", tidy.strip_code('// getenv\nf("getenv");\n')), [])
        self.assertTrue(found(tidy.check_words, "a.cc", tidy.strip_code('getenv("X");\n')))

    def test_function_sizes(self):
        long_body = "int Type::method(int x) const {\n" + "  x += 1;\n" * 71 + "  return x;\n}\n"
        code = ("#pragma once\n#include <vector>\n#define CHECK(x) \\\n  do { f(x); } while (0)\n"
                "namespace troupe {\nstruct S {\n  int small() { return 1; }\n};\n" + long_body + "}  // namespace troupe\n")
        sizes = {name: count for name, _, count in source.functions(source.strip_code(code))}
        self.assertEqual(sizes, {"small": 1, "Type::method": 74})
        kernel = source.strip_code("template <int N>\n__global__ void __launch_bounds__(kThreads) add(int* x) {\n}\n")
        self.assertEqual([name for name, _, _ in source.functions(kernel)], ["add"])
        self.assertEqual(over(shape.function_lines, code), {"gateway/a.cc:Type::method": 74})
        self.assertEqual(over(shape.function_lines, code.replace("  x += 1;\n" * 5, "")), {})

    def test_what_has_grown_and_what_has_shrunk_is_told(self):
        files = {"gateway/a.cc": "\n" * 401}
        self.assertEqual(len(ratcheted({}, files)[0]), 1)
        self.assertEqual(ratcheted({"file lines": {"gateway/a.cc": 401}}, files), ([], {"file lines": {"gateway/a.cc": 401}}))
        self.assertIn("at most 400", ratcheted({"file lines": {"gateway/a.cc": 400}}, files)[0][0], "it may not grow")
        self.assertIn("down: 'gateway/a.cc' 401 from 500 (1 in all)", ratcheted({"file lines": {"gateway/a.cc": 500}}, files)[0][0])
        gone = {f"gateway/{name}.cc": 500 for name in "abcd"}
        self.assertEqual(len(ratcheted({"file lines": gone}, {})[0]), 1, "one line a rule")
        self.assertIn("'gateway/a.cc' within the budget from 500; ", ratcheted({"file lines": gone}, {})[0][0])

    def test_the_ratchet_is_lowered_and_never_raised(self):
        old = {"riddles": {"a.cc": 3, "b.cc": 3, "c.cc": 3}, "folder units": {"sim": 40}}
        counts = {"riddles": {"a.cc": 2, "b.cc": 4, "d.cc": 1}}
        self.assertEqual(shape.tighten(old, counts), {"riddles": {"a.cc": 2, "b.cc": 3}})

    def test_one_definition(self):
        one = "namespace troupe {\nclass Pieces {\n};\n}  // namespace troupe\n"
        hidden = "namespace troupe {\nnamespace {\nstruct Pieces {\n};\n}  // namespace\n}  // namespace troupe\n"
        other = "namespace troupe::text {\nclass Pieces {\n};\n}  // namespace troupe::text\n"
        self.assertTrue(found(tidy.check_one_definition, {"a.h": one, "b.h": one}))
        self.assertEqual(found(tidy.check_one_definition, {"a.h": one, "b.cc": hidden, "c.h": other}), [])

    def test_file_sizes(self):
        self.assertEqual(over(shape.file_lines, "\n" * 401, "\n" * 400), {"gateway/a.cc": 401})

    def test_unit_cycles(self):
        def files(**includes):
            return {path.replace("__", "."): f'#include "{target}"\n' for path, target in includes.items()}

        mutual = files(a__h="b.h", b__h="", b__cc="c.h", c__h="a.h", d__h="a.h")
        self.assertEqual(over(shape.unit_cycles, files=mutual), {"a": 3, "b": 3, "c": 3})
        straight = files(a__h="", a__cc="b.h", b__h="", c__cc="a.h")
        self.assertEqual(over(shape.unit_cycles, files=straight), {})
        own = files(a__h="", a__cc="a_impl.h", a_impl__h="a.h", a_part__cc="a_impl.h")
        self.assertEqual(over(shape.unit_cycles, files=own), {}, "one's own _impl.h is no other unit")
        others = files(a__h="", b__cc="b.h", b__h="a_impl.h", a_impl__h="b.h")
        self.assertEqual(over(shape.unit_cycles, files=others), {"a": 2, "b": 2}, "another's is")

    def test_folder_units(self):
        files = {f"gateway/route/u{i}.{kind}": "" for i in range(31) for kind in ("h", "cc")}
        self.assertEqual(over(shape.folder_units, files=files), {"gateway/route": 31})
        del files["gateway/route/u0.h"], files["gateway/route/u0.cc"]
        self.assertEqual(over(shape.folder_units, files=files | {"gateway/route/key/x.h": ""}), {})

    def test_a_class_in_many_files(self):
        header = "namespace troupe {\nclass Proxy {\n  struct Impl {\n    int x = 0;\n  };\n};\n}  // namespace troupe\n"
        part = '#include "a.h"\nnamespace troupe {\nint Proxy::f(int x) {\n  return x;\n}\n}  // namespace troupe\n'
        nested = part.replace("Proxy::f", "Proxy::Impl::f")
        free = part.replace("Proxy::f", "names::f")
        self.assertEqual(over(shape.class_files, header + part, part, part), {"gateway:Proxy": 3})
        self.assertEqual(over(shape.class_files, header + part, part, nested, nested, free, free), {})

    def test_members_of_a_class(self):
        body = """
 public:
  explicit Type(int x) : x_(x), y_{x} {}
  Type(const Type&) = delete;
  ~Type() = default;
  [[nodiscard]] const std::vector<int>& values() const { return values_; }
  bool operator==(const Type& other) const;
  template <typename T>
  void each(T&& visit) {
    if (x_ > 0) { visit(x_); }
  }
  virtual Status run(const Params& params = {}) = 0;

 private:
  using Map = std::map<int, int>;
  friend class Other;
  struct Slot {
    int a = 0;
    int g() { return a; }
  };
  enum class State { kOne, kTwo };
  static constexpr int kMax = 3;
  int64_t sent_ = 0, held_ = f(1, 2);
  std::function<void(int, int)> hook_;
  std::map<int, std::vector<int>> by_id_ ABSL_GUARDED_BY(mutex_);
  std::array<int, 2> pair_{1, 2};
  const char* name_ = "";
  int x_, y_;
"""
        code = source.strip_code("namespace troupe {\nclass Type : public Base {" + body + "};\n}\n")
        (name, _, text), = [one for one in source.classes(code) if one[0] == "Type"]
        found = list(source.members(text))
        functions = [text for kind, text in found if kind == "function"]
        fields = [text for kind, text in found if kind == "field"]
        self.assertEqual(len(functions), 5, functions)
        self.assertEqual(sum(map(source.field_count, fields)), 8, fields)
        self.assertEqual(sorted(one[0] for one in source.classes(code)), ["Type", "Type::Slot"])

    def test_a_wide_class(self):
        def of(name, functions, fields):
            return f"class {name} {{\n" + "  void f();\n" * functions + "  int x = 0;\n" * fields + "};\n"

        self.assertEqual(over(shape.class_functions, of("A", 26, 0), of("B", 25, 0)), {"gateway:A": 26})
        self.assertEqual(over(shape.class_fields, of("A", 0, 21), of("B", 0, 20)), {"gateway:A": 21})
        self.assertEqual(over(shape.class_fields, of("ProxyOptions", 0, 21)), {}, "a setting is added without asking")
        self.assertEqual(over(shape.class_fields, files={"common/api/api.h": of("Request", 0, 21)}), {}, "so is a field of a protocol")

    def test_live_rules_in_the_simulator(self):
        text = "auto x = decide_retry(y);\nviews.push_back(NodeView{node});\nClusterView (a);\nNodeHealth h;\n// NodeHealth\n"
        self.assertEqual(over(shape.live_rules_in_sim, files={"sim/fleet/x.cc": text, "gateway/route/x.cc": text}), {"sim/fleet/x.cc": 4})
        driven = "const ClusterView& view = registry.view();\nNodeHealthy x;\n"
        self.assertEqual(over(shape.live_rules_in_sim, files={"sim/fleet/x.cc": driven}), {})

    def test_comments_that_begin_with_a_riddle(self):
        bad = "// What is left.\nint a;\n\n  // Of a request: it\n  // waits.\n  // Who waits.\nint b;\n// Whoever\n//\n// Those\nint c;\n// Which waits.\n"
        self.assertEqual(over(shape.riddles, bad), {"gateway/a.cc": 4})
        good = ("// The rest. What is left\n// Who asks.\nint a;  // of all\n        // Those of it.\n// Office hours.\n"
                'const char* s = R"(\n// What?\n)";\n')
        self.assertEqual(over(shape.riddles, good), {})

    def test_comment_lines(self):
        self.assertEqual(source.comment_lines('// a\n  // b\nint x;  // c\nf("http://d");  // e\ng("//");\n'), (2, 2))

    def test_comments_torn_by_the_formatter(self):
        full = "// " + "x" * 103 + "\n"
        bad = [full + "// four\n// goes on there\n", "//   decide()  " + "x" * 91 + "\n// four and\n//             goes on\n",
               "  // " + "x" * 101 + "\n  // four\n  // goes on there\n"]
        for text in bad:
            self.assertEqual(over(shape.torn_comments, text), {"gateway/a.cc": 1}, text)
        good = [bad[0].replace("four", "one"), bad[0].replace("// goes on there\n", ""), bad[0].replace("// four", "// - four"),
                bad[0].replace("// four", "//"), bad[0].replace("// four", "// four five six"), "// Shapes:\n// one\n// two\n"]
        for text in good:
            self.assertEqual(over(shape.torn_comments, text), {}, text)

    def test_mutexes_say_what_they_guard(self):
        bad = ["class A {\n  Mutex mutex_;\n  int x_ = 0;\n};\n", "class A {\n  mutable std::mutex mutex_;\n};\n",
               "class A {\n  Mutex a_;\n  mutable Mutex b_;\n  int x_ ABSL_GUARDED_BY(a_);\n};\n", "std::condition_variable_any wake;\n"]
        for code in bad:
            self.assertTrue(found(tidy.check_mutexes, "gateway/x.h", code), code)
        good = ["class A {\n  mutable Mutex mutex_;\n  int x_ ABSL_GUARDED_BY(mutex_) = 0;\n};\n", "void f(Mutex& mutex);\n"]
        for code in good:
            self.assertEqual(found(tidy.check_mutexes, "gateway/x.h", code), [], code)
        self.assertEqual(found(tidy.check_mutexes, "common/core/mutex.h", "std::mutex mutex_;\n"), [])

    def test_readme_is_short(self):
        lines, words = tidy.README_LINES_MAX, tidy.README_WORDS_MAX
        for text in ["a line\n" * lines, "a " * words]:
            self.assertTrue(found(tidy.check_readme, {"README.md": text}), text[:10])
        for page, text in {"README.md": "a line\n" * (lines - 1) + "a " * (words - 2 * lines), "docs/x.md": "a line\n" * 3 * words}.items():
            self.assertEqual(found(tidy.check_readme, {page: text}), [], page)

    def test_lines_of_tables_are_short(self):
        cell = "x" * (tidy.TABLE_COLUMNS_MAX - 4)
        for page in ["README.md", "docs/x.md"]:
            self.assertTrue(found(tidy.check_readme, {page: f"| {cell}x |\n"}), page)
            self.assertEqual(found(tidy.check_readme, {page: f"| {cell} |\n{cell} is a long line, but of no table\n"}), [], page)

    def test_links_and_paths_of_pages_exist(self):
        bad = {"README.md": ["[a](docs/no-such-page.md)", "![a](no.svg)", "[a](tidy.py)", '<img src="no.svg">', "[a](nowhere.md#part)",
                             "`gateway/route/no_such_file.h`", "`tests/no-such-folder/`"],
               "docs/x.md": ["[a](README.md)", "[a](../tests/tidy/none.py)", "`worker/nobody.cc`"]}
        for page, texts in bad.items():
            for text in texts:
                self.assertTrue(found(tidy.check_readme, {page: f"words {text}\n"}), (page, text))
        good = {"README.md": ["[a](tests/tidy/tidy.py#L1)", "[a](https://example.org/x)", "[a](#part)", "`tests/tidy/tidy.py`", "`tests/tidy`",
                              "`gateway/route/*.h`", "`tests/run.sh -R nobody`", "`x/nobody.cc`"],
                "docs/x.md": ["[a](../README.md)", "[a](../tests/tidy/tidy.py)", "`tests/tidy/tidy.py`"]}
        for page, texts in good.items():
            for text in texts:
                self.assertEqual(found(tidy.check_readme, {page: f"words {text}\n"}), [], (page, text))


    def test_names_in_pages_exist(self):
        codes = {"a.h": "class Flow {\n  void failed();\n  struct Part {\n    int left;\n  };\n};\n", "b.cc": "void Other::run() {\n}\n"}
        for text in ["`Flow::failing`", "`Gone::failed`", "`Flow::failed`, then `Flow::left_over`"]:
            self.assertEqual(len(found(tidy.check_names_in_pages, {"docs/x.md": text + "\n"}, codes)), 1, text)
        for text in ["`Flow::failed(why)`", "`Part::left`", "`Other::run`", "std::vector", "Flow::gone is plain text"]:
            self.assertEqual(found(tidy.check_names_in_pages, {"docs/x.md": text + "\n"}, codes), [], text)


GUARDED = """
#include "common/core/mutex.h"
namespace troupe {
class Counter {
 public:
  void add() {
    const MutexLock lock(mutex_);
    add_locked();
  }
  int await(int count) {
    const MutexLock lock(mutex_);
    while (count_ < count) changed_.wait(mutex_);
    return count_;
  }

 private:
  void add_locked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    ++count_;
    changed_.notify_all();
  }
  Mutex mutex_;
  CondVar changed_;
  int count_ ABSL_GUARDED_BY(mutex_) = 0;
};
}  // namespace troupe
"""


@unittest.skipUnless(shutil.which("clang++-16"), "clang++-16 builds the fuzzers, which a quick run leaves out")
class Locks(unittest.TestCase):
    """What the fuzz preset's compiler says of common/core/mutex.h."""

    def errors(self, code):
        command = ["clang++-16", "-std=c++20", "-Wthread-safety", "-Werror", "-fsyntax-only", "-I", str(tidy.ROOT), "-x", "c++", "-"]
        result = subprocess.run(command, input=code, capture_output=True, text=True)
        self.assertEqual(result.returncode != 0, "error:" in result.stderr, result.stderr)
        return [line for line in result.stderr.split("\n") if "error:" in line]

    def test_locked_code_compiles(self):
        self.assertEqual(self.errors(GUARDED), [])

    def test_a_missing_lock_does_not(self):
        unlocked = GUARDED.replace("    const MutexLock lock(mutex_);\n    while", "    while")
        self.assertNotEqual(unlocked, GUARDED)
        self.assertRegex("\n".join(self.errors(unlocked)), "reading variable 'count_' requires holding mutex 'mutex_'")
        self.assertRegex("\n".join(self.errors(unlocked)), "calling function 'wait' requires holding mutex 'mutex_'")
        unlocked = GUARDED.replace("    const MutexLock lock(mutex_);\n    add_locked", "    add_locked")
        self.assertRegex("\n".join(self.errors(unlocked)), "calling function 'add_locked' requires holding mutex 'mutex_'")


class Measures(unittest.TestCase):
    """The figures of measure.py, of trees small enough to count by hand."""

    TREE = {
        "gateway/route/policy.cc": 'constexpr Named kPolicies[] = {\n    {{.name = "power-of-two"}, make_power_of_two},\n    {{.name = "chwbl", .reads = 1}, make_chwbl},\n};\n',
        "gateway/route/chwbl.cc": "// Not power-of-two.\nclass ChwblPolicy {\n  void f();\n  void g();\n  int x = 0;\n};\n",
        "gateway/route/two.cc": 'class PowerOfTwoPolicy {\n  int x, y, z;\n};\nint strengths = power(of, two);\n',
        "gateway/proxy/parser.cc": '  if (path == "/tokenize") return parse_tokenize;\n',
        "gateway/proxy/spans.cc": 'names = {"/tokenize", "/tokenized"};\n',
        "worker/http/server.cc": 'Impl::kRoutes{{\n    {"POST", "/tokenize", &Impl::tokenize},\n    {"GET, HEAD", "/livez", &Impl::livez},\n}};\n',
        "worker/schedule/plan.cc": "// block_size\nlimit(config.tpot_budget_);\nuse(block.size());\n",
        "kernels/kernels.h": "  virtual void silu_mul(const SiluMulParams& params) = 0;\n  virtual void start(const void* from) = 0;\n",
        "kernels/cpu/rows.cc": "void multiply(const SiluMulParams& p) {\n  f();\n}\n",
        "configs/worker.yaml": "# Words.\nmodel: x\ntpot_budget_ms: 0\nlimits:\n  body_bytes: 1\nblock_size: 16\n",
        "configs/simulator.yaml": "tpot_budget_ms: 0  # the worker's\n",
        "tests/worker/plan_test.cc": "config.tpot_budget = x;\n",
        "tests/e2e/test_policies.py": 'run("--policy", "power-of-two")\n',
        "README.md": "Three short words\n",
    }

    def test_names_come_from_registries_and_configurations(self):
        names = {kind: sorted(tests) for kind, tests in measure.named_things(measure.Tree(self.TREE)).items()}
        self.assertEqual(names, {"model family": [], "op": ["silu_mul"], "routing policy": ["chwbl", "power-of-two"], "setting of the gateway": [],
                                 "setting of the worker": ["block_size", "tpot_budget"], "setting of worker and simulator": ["tpot_budget"],
                                 "endpoint that the gateway forwards": ["/tokenize"], "endpoint of the worker": ["/livez", "/tokenize"]})

    def test_every_registry_of_the_tree_itself_is_found(self):
        tree = measure.Tree(measure.texts(measure.HERE))
        self.assertEqual([kind for kind, tests in measure.named_things(tree).items() if not tests], [])

    def test_files_that_name_one(self):
        touched = {kind: counts for kind, *counts in measure.touch_rows(measure.Tree(self.TREE))}
        self.assertEqual(touched["routing policy"], ["2", "0", "0 (0–1)"], "neither a comment nor power(of, two) names a policy")
        self.assertEqual(touched["op"], ["2", "0", "0"])
        self.assertEqual(touched["setting of worker and simulator"], ["1", "2", "1"])
        self.assertEqual(touched["setting of the worker"], ["0 (0–1)", "1 (1–2)", "0 (0–1)"], "block.size() is no block_size")
        self.assertEqual(touched["endpoint that the gateway forwards"], ["3", "0", "0"], "/tokenized is another path")
        self.assertEqual(touched["model family"], ["–", "–", "–"])

    def test_summary(self):
        rows = dict(measure.summary_rows(measure.Tree(self.TREE)))
        self.assertEqual(rows["files / units / lines"], "9 / 9 / 28")
        self.assertEqual(rows["function lines: median / p90 / max"], "3 / 3 / 3")
        self.assertEqual(rows["functions of a class that has some: median / p90 / max"], "2 / 2 / 2")
        self.assertEqual(rows["fields of a class that has some: median / p90 / max"], "2 / 3 / 3")
        self.assertEqual(rows["comment blocks / opening before their subject"], "2 / 0 (0.0 %)")
        self.assertEqual(rows["README lines / words"], "1 / 3")
        self.assertEqual(rows["test : code, C++ / with Python"], "0.04 / 0.07")
        self.assertEqual(dict(measure.summary_rows(measure.Tree({})))["functions"], 0)

    def test_cycles_of_files_units_and_folders(self):
        files = {"a/x.h": "", "a/x.cc": '#include "b/y.h"\n', "b/y.h": '#include "a/x.h"\n', "b/z.h": '#include "b/y.h"\n'}
        rows = dict(measure.summary_rows(measure.Tree(files)))
        self.assertEqual(rows["include cycles of files (files in them)"], "0 (0)")
        self.assertEqual(rows["… of units (units in them)"], "1 (2)")
        self.assertEqual(rows["… of folders (folders in them)"], "1 (2)")

    def test_quantiles(self):
        self.assertEqual(measure.spread(list(range(1, 11))), "5 / 10 / 10")
        self.assertEqual(measure.spread([]), "0 / 0 / 0")
        self.assertEqual(measure.median_of([3, 1, 2, 9]), "2 (1–9)")
        self.assertEqual(measure.median_of([4, 4]), "4")

    def test_revisions_stand_side_by_side(self):
        self.assertEqual(list(measure.side_by_side([{"lines": 1, "gone": 2}, {"lines": 3, "new": 4}])), [("lines", 1, 3), ("new", "–", 4)])


class FileByFile(unittest.TestCase):
    """Two files of one batch, of which the second lives on what the first includes."""

    def setUp(self):
        self.root = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory())).resolve()
        self.enterContext(unittest.mock.patch.object(file_by_file, "ROOT", self.root))
        self.build = self.root / "build"
        self.build.mkdir()
        (self.root / "a.h").write_text("struct A { int value; };\n")
        (self.root / "a.cc").write_text('#include "a.h"\n')
        (self.root / "b.cc").write_text("int b(A a) { return a.value; }\n")
        (self.build / "unity.cxx").write_text('#include "a.cc"\n#include "b.cc"\n')
        command = f"/usr/bin/ccache g++ -I{self.root} -Wall -Werror -Wno-shadow -o unity.o -c {self.build}/unity.cxx"
        (self.build / "compile_commands.json").write_text(json.dumps(
            [{"directory": str(self.build), "file": str(self.build / "unity.cxx"), "command": command}]))

    def checked(self):
        flags = file_by_file.flags_by_source(self.build)
        self.assertEqual({path.name for path in flags}, {"a.cc", "b.cc"})
        return {path.name: file_by_file.check(path, words) for path, words in flags.items()}

    def test_a_missing_include_is_found(self):
        said = self.checked()
        self.assertEqual(said["a.cc"], "")
        self.assertIn("was not declared", said["b.cc"])
        (self.root / "b.cc").write_text('#include "a.h"\nint b(A a) { return a.value; }\n')
        self.assertEqual(self.checked()["b.cc"], "")

    def test_a_shadowed_member_is_found(self):
        (self.root / "b.cc").write_text("struct B { int x; int f(int y) { int x = y; return x; } };\n")
        self.assertIn("shadows", self.checked()["b.cc"])

    def test_a_changed_header_makes_its_files_due_again(self):
        flags = file_by_file.flags_by_source(self.build)
        digest = lambda: {path.name: file_by_file.Digests().of(path, words) for path, words in flags.items()}
        before = digest()
        self.assertEqual(digest(), before)
        (self.root / "a.h").write_text("struct A { long value; };\n")
        self.assertNotEqual(digest()["a.cc"], before["a.cc"])
        self.assertEqual(digest()["b.cc"], before["b.cc"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
