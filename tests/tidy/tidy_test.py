#!/usr/bin/env python3
"""Holds tidy.py to its word: every rule finds the thing it is there for, and leaves good code alone."""
import sys
import unittest

import tidy


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
               "worker/z.cc": "#include <cuda_runtime.h>"}
        for path, text in bad.items():
            self.assertTrue(found(tidy.check_includes, path, text + "\n"), path)
        good = {"gateway/proxy/proxy.cc": '#include "common/net/task.h"', "worker/model/x.cc": '#include "kernels/kernels.h"',
                "common/core/x.cc": '#include "absl/status/status.h"', "kernels/backend.cc": '#include "kernels/tensor.h"'}
        for path, text in good.items():
            self.assertEqual(found(tidy.check_includes, path, text + "\n"), [], path)

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
        code = "namespace troupe {\nstruct S {\n  int small() { return 1; }\n};\n" + long_body + "}  // namespace troupe\n"
        sizes = {name: count for name, _, count in tidy.functions(tidy.strip_code(code))}
        self.assertEqual(sizes, {"small": 1, "Type::method": 74})
        self.assertTrue(found(tidy.check_sizes, {}, {"a.cc": code}))
        self.assertEqual(found(tidy.check_sizes, {"a.cc:Type::method": 74}, {"a.cc": code}), [])
        self.assertTrue(found(tidy.check_sizes, {"a.cc:Type::method": 73}, {"a.cc": code}), "it may not grow")
        self.assertTrue(found(tidy.check_sizes, {"a.cc:Type::method": 80}, {"a.cc": code}), "the ratchet must follow it down")

    def test_one_definition(self):
        one = "namespace troupe {\nclass Pieces {\n};\n}  // namespace troupe\n"
        hidden = "namespace troupe {\nnamespace {\nstruct Pieces {\n};\n}  // namespace\n}  // namespace troupe\n"
        other = "namespace troupe::text {\nclass Pieces {\n};\n}  // namespace troupe::text\n"
        self.assertTrue(found(tidy.check_one_definition, {"a.h": one, "b.h": one}))
        self.assertEqual(found(tidy.check_one_definition, {"a.h": one, "b.cc": hidden, "c.h": other}), [])

    def test_file_sizes(self):
        self.assertTrue(found(tidy.check_sizes, {}, {"a.cc": "\n" * 401}))
        self.assertEqual(found(tidy.check_sizes, {}, {"a.cc": "\n" * 400}), [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
