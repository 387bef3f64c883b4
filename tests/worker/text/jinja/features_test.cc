// Features of published templates beyond loops and ifs, with Jinja2's results (jinja_oracle.py compares many
// more); and the limits on a template's run time.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json/object.hpp>
#include <ctime>
#include <string>
#include <string_view>

#include "common/json/json.h"
#include "tests/common/sanitized.h"
#include "worker/text/chat_template.h"

namespace troupe::jinja_features_test {

using ::testing::HasSubstr;
using ::testing::Not;

std::string rendered(std::string_view source, std::string_view context = "{}") {
  auto parsed = ChatTemplate::parse(source);
  if (!parsed.ok()) return "error: " + std::string(parsed.status().message());
  auto text = (*parsed)->render(parse_json(context)->get_object());
  return text.ok() ? *text : "error: " + std::string(text.status().message());
}

TEST(JinjaFeatures, UnpacksStarredArguments) {
  EXPECT_EQ(rendered("{% macro m(a, b=2, c=3) %}{{ a }}{{ b }}{{ c }}{% endmacro %}"
                     "{{ m(*[7, 8]) }} {{ m(1, **{'c': 9}) }} {{ m(*'xy', c=0) }}"),
            "783 129 xy0");
  EXPECT_THAT(rendered("{{ dict(**[1]) }}"), HasSubstr("must be a mapping"));
  EXPECT_THAT(rendered("{{ dict(a=1, **{'a': 2}) }}"), HasSubstr("multiple values for keyword argument 'a'"));
  EXPECT_THAT(rendered("{{ dict(**x, *y) }}"), HasSubstr("may stand once each"));
}

TEST(JinjaFeatures, MacrosBindTheNamesTheyRead) {
  EXPECT_EQ(rendered("{% macro m(a) %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, k=3) }}"),
            "(2,){'k': 3}");
  EXPECT_THAT(rendered("{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}"), HasSubstr("not more than 1 argument"));
  EXPECT_THAT(rendered("{% macro m() %}{% endmacro %}{% call m() %}{% endcall %}"),
              HasSubstr("no keyword argument 'caller'"));
  EXPECT_EQ(
      rendered("{% macro m() %}<{{ caller('x') }}>{% endmacro %}{% call(q) m() %}{{ q }}y{% endcall %}"),
      "<xy>");
  EXPECT_EQ(
      rendered("{% macro m(a, b) %}{{ caller }}{% endmacro %}{{ m.name }}{{ m.arguments }}{{ m.caller }}"),
      "m('a', 'b')True");
}

TEST(JinjaFeatures, FormatsValuesIntoTexts) {
  EXPECT_EQ(rendered("{{ '%s has %03d, %.2f%% %r %-4s|' % ('a', 7, 1.005, 'q', 'x') }}"),
            "a has 007, 1.00% 'q' x   |");
  EXPECT_EQ(rendered("{{ '%(k)s!' % {'k': [1]} }}{{ '%s'|format(1) }}{{ '%(a)x'|format(a=255) }}"),
            "[1]!1ff");
  EXPECT_THAT(rendered("{{ '%d' % 'x' }}"), HasSubstr("a real number is required, not str"));
  EXPECT_THAT(rendered("{{ '%s %s' % 1 }}"), HasSubstr("not enough arguments"));
  EXPECT_THAT(rendered("{{ '% %' % 1 }}"), HasSubstr("unsupported format character '%'"));
  EXPECT_THAT(rendered("{{ '%s' % (1, 2) }}"), HasSubstr("not all arguments converted"));
  EXPECT_EQ(rendered("{{ '{} {k:>4} {0[1]!r}'.format('ab', k=1.5) }}"),
            "error: line 1: cannot switch between manual and automatic field numbering");
  EXPECT_EQ(rendered("{{ '{0[1]!r} {k:>5}|{k:06.2f}|{{}}{0:^6}'.format('ab', k=1.5) }}"),
            "'b'   1.5|001.50|{}  ab  ");
  EXPECT_THAT(rendered("{{ '%99999s' % 1 }}{{ '{:99999}'.format(1) }}"), HasSubstr("over 10000"));
}

TEST(JinjaFeatures, GroupsAndSlicesLists) {
  const char* rows = R"({"rows": [{"r": "b", "n": 2}, {"r": "A", "n": 3}, {"r": "B", "n": 1}]})";
  EXPECT_EQ(
      rendered("{% for g in rows|groupby('r') %}{{ g.grouper }}{{ g.list|length }}{{ g[0] }};{% endfor %}",
               rows),
      "A1A;b2b;");
  EXPECT_EQ(rendered("{{ rows|sort(attribute='r,n')|map(attribute='n')|join(',') }}", rows), "3,1,2");
  EXPECT_EQ(rendered("{{ range(5)|slice(2)|list }}{{ range(5)|slice(3, 'x')|list }}"),
            "[[0, 1, 2], [3, 4]][[0, 1], [2, 3], [4, 'x']]");
  EXPECT_EQ(rendered("{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}"
                     "{% set j = joiner('|') %}{% for i in 'xy' %}{{ j() }}{{ i }}{% endfor %}"),
            "abab"
            "x|y");
}

TEST(JinjaFeatures, ParsesIntegersLikePython) {
  EXPECT_EQ(
      rendered("{{ ['ff'|int(0, 16), '0x1F'|int(base=16), ' 1_000 '|int, '1__0'|int(-1), '0b11'|int(base=0), "
               "'z'|int(5), '7.9'|int, 1.9|int] }}"),
      "[255, 31, 1000, -1, 3, 5, 7, 1]");
  EXPECT_THAT(rendered("{{ '99999999999999999999'|int }}"), HasSubstr("does not fit into 64 bits"));
  EXPECT_THAT(rendered("{{ 1e30|int }}"), HasSubstr("does not fit into 64 bits"));
}

TEST(JinjaFeatures, KindsOfListsAreUnequal) {
  EXPECT_EQ(
      rendered("{{ [0, 1] == range(2) }}{{ (0, 1) == [0, 1] }}{{ range(2) == range(2) }}{{ [0] < [1] }}"),
      "FalseFalseTrueTrue");
  EXPECT_THAT(rendered("{{ range(1) < range(2) }}"), HasSubstr("'<' not supported between"));
}

TEST(JinjaFeatures, TuplesHaveTheirOwnMethods) {
  EXPECT_EQ(rendered("{{ (1, 2, 1).count(1) }}{{ (1, 2).index(2) }}{{ [7].copy() }}"), "21[7]");
  EXPECT_EQ(rendered("{{ (1,).copy is defined }} {{ (1,).append is defined }}"), "False False");
  EXPECT_THAT(rendered("{{ (1, 2).copy() }}"), HasSubstr("has no attribute 'copy'"));
}

TEST(JinjaFeatures, MutatingMethodsAreUndefined) {
  EXPECT_EQ(rendered("{{ [1].append is defined }} {{ {}['update'] is defined }} {{ [].sort or 'none' }}"),
            "False False none");
  EXPECT_THAT(rendered("{{ [1].append(2) }}"), HasSubstr("must not change a list"));
  EXPECT_THAT(rendered("{{ {}.update({}) }}"), HasSubstr("must not change a dict"));
}

TEST(JinjaFeatures, PowerBeyondAFloatIsAnError) {
  EXPECT_EQ(rendered("{{ 7 ** 300.0 > 1e253 }} {{ 7 ** -1e22 }} {{ (1e308 * 10) ** 2 }} {{ 1e308 * 10 }}"),
            "True 0.0 inf inf");
  EXPECT_THAT(rendered("{{ 7 ** 1e22 }}"), HasSubstr("out of range"));
  EXPECT_THAT(rendered("{{ (-2.0) ** 5000 }}"), HasSubstr("out of range"));
}

TEST(JinjaFeatures, ObjectsAreKeysAndEqualOnlyThemselves) {
  EXPECT_EQ(rendered("{% set c = cycler(1) %}{% set j = joiner() %}{% set d = {c: 3, j: 4, cycler(1): 5} %}"
                     "{{ d|length }}{{ d[c] }}{{ d[j] }}{{ d[joiner()] is defined }}"
                     "{{ [c, j, c, cycler(1)]|unique|list|length }}"),
            "334False3");
  EXPECT_EQ(rendered("{% macro m() %}{% endmacro %}{% set n = namespace() %}{% set d = {m: 1, n: 2} %}"
                     "{{ d[m] }}{{ d[n] }}{{ {range(2): 3}[range(0, 2)] }}{{ m is filter }}"),
            "123False");
  EXPECT_THAT(rendered("{{ [[]]|unique|list }}"), HasSubstr("unhashable type: 'list'"));
  EXPECT_THAT(rendered("{{ {(1, []): 2} }}"), HasSubstr("unhashable type: 'list'"));
  EXPECT_THAT(rendered("{{ {{}.keys(): 1} }}"), HasSubstr("unhashable type: 'dict_keys'"));
  EXPECT_EQ(rendered("{{ {1: 2}[(1, [])] is defined }}"), "False");
}

TEST(JinjaFeatures, NamespacesRefuseUnderscores) {
  EXPECT_THAT(rendered("{% set n = namespace(_a=1) %}"), HasSubstr("must not begin with '_'"));
  EXPECT_THAT(rendered("{% set n = namespace() %}{% set n._a = 1 %}"), HasSubstr("must not begin with '_'"));
  EXPECT_EQ(rendered("{{ dict([('a', 1)], b=2) }}"), "{'a': 1, 'b': 2}");
}

// Each template is stopped by the limit its error names, within about half a second of CPU time; the bound
// leaves room for a busy machine.
TEST(JinjaFeatures, StopsRunawayTemplatesSoonNamingTheLimit) {
  constexpr double kSecondsMax = kSanitized ? 20 : 2;
  const std::string many_variables = [] {
    std::string source;
    for (int i = 0; i < 9000; ++i) source += "{% set v" + std::to_string(i) + " = 1 %}";
    return source +
           "{% for i in range(99999) %}{% for j in range(99999) %}{{ v8999 }}{% endfor %}{% endfor %}";
  }();
  const std::string two_trees =
      "{% set n = namespace(a=[1], b=[1]) %}{% for i in range(60) %}{% set n.a = [n.a, n.a] %}"
      "{% set n.b = [n.b, n.b] %}{% endfor %}";
  const std::string a_tree =
      "{% set n = namespace(a=[1], b=[1]) %}{% for i in range(15) %}{% set n.a = [n.a, n.a] %}"
      "{% set n.b = [n.b, n.b] %}{% endfor %}";
  const std::string loop = "{% for i in range(99999) %}{% for j in range(99) %}";
  const std::string end = "{% endfor %}{% endfor %}";
  const std::pair<std::string, const char*> runaways[] = {
      {loop + end, "more than 2000000 steps"},
      {"{% macro f(n) %}{{ f(n - 1) }}{{ f(n - 1) }}{% endmacro %}{{ f(100) }}", "more than "},
      {"{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(40) }}",
       "2000000 steps"},
      {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion of more than 1000 levels"},
      {"{% for a in [1] recursive %}{{ loop([1]) }}{% endfor %}", "recursion of more than 1000 levels"},
      {two_trees + "{{ n.a == n.b }}", "more than 1000000 parts"},
      {two_trees + "{{ n.a|tojson }}", "more than 1000000 parts"},
      {a_tree + loop + "{{ n.a == n.b }}" + end, "2000000 steps"},
      {a_tree + loop + "{{ n.a in [n.b] }}" + end, "2000000 steps"},
      {a_tree + loop + "{{ n.a|string|length }}" + end, "2000000 steps"},
      {many_variables, "2000000 steps"},
      {"{% set s = 'ab' * 5000000 %}" + loop + "{{ 'x' in s }}" + end, "2000000 steps"},
      {"{% set s = 'ab' * 5000000 %}" + loop + "{{ s.count('x') }}{{ s.rfind('x') }}" + end, "more than"},
      {"{% set s = 'ab' * 5000000 %}" + loop + "{{ s|length }}{{ s[-1] }}" + end, "2000000 steps"},
      {"{% set s = 'ab' * 5000000 %}{% set t = 'ab' * 5000000 %}" + loop + "{{ s == t }}" + end,
       "2000000 steps"},
      // A search that takes quadratic time if naive.
      {"{% set s = 'a' * 8000000 %}{{ s.find('a' * 4000000 ~ 'b') }}{{ s|wordcount }}{{ 'x' * 99999999 }}",
       "bytes of text"},
      {"{{ ('a ' * 4000000).rsplit(none, 7)|length }}{{ 'x' * 99999999 }}", "bytes of text"},
      {"{{ '%9999s%9999s' % (1, 2) * 9999 }}", "bytes of text"},
      {loop + "{{ '%9999s' % 1 }}" + end, "more than"},
      {loop + "{{ 'x'.center(9999) }}" + end, "more than"},
      {"{{ 'x'.center(9223372036854775807) }}", "bytes of text"},
      {"{{ range(100001) }}", "range() of more than 100000"},
      {"{% set n = namespace(t=(1, 2)) %}{% for i in range(60) %}{% set n.t = (n.t, n.t) %}{% endfor %}{{ "
       "{n.t: 1} }}",
       "more than 1000000 parts"},
      {loop + "{{ range(9999)|sort(reverse=true)|length }}" + end, "2000000 steps"},
      {"{{ " + std::string(300, '(') + "1" + std::string(300, ')') + " }}", "nested too deeply"},
  };
  for (const auto& [source, limit] : runaways) {
    const std::clock_t begin = std::clock();  // CPU time of this process: a busy machine does not count
    const std::string answer = rendered(source);
    const double took_s = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    EXPECT_THAT(answer.substr(0, 200), HasSubstr("error: line ")) << source.substr(0, 300);
    EXPECT_THAT(answer.substr(0, 200), HasSubstr(limit)) << source.substr(0, 300);
    EXPECT_LT(took_s, kSecondsMax) << source.substr(0, 300);
  }
}

}  // namespace troupe::jinja_features_test
