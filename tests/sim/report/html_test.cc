// The page as a browser parses it: tags nest, numbers are the results', names stay text, and the size does
// not follow the run's.

#include "sim/report/html.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <set>

#include "common/json/json.h"
#include "gateway/route/policy/policy.h"

namespace troupe::sim {
namespace html_test {

Result result_of(std::string policy, size_t nodes, size_t seconds) {
  Result r;
  r.policy = std::move(policy);
  r.mode = "exact";
  r.profile = "study";
  r.nodes = static_cast<int32_t>(nodes);
  r.gateways = 1;
  r.requests = 12'345;
  r.hit_tokens = 0.876;
  r.pooled_lru_hit = 0.9;
  r.goodput = 0.995;
  r.ttft_ms = {11, 22, 33};
  r.seconds.resize(seconds);
  for (size_t s = 0; s < seconds; ++s) {
    r.seconds[s].arrived = static_cast<int32_t>(s % 97 + 1);
    r.seconds[s].prompt_tokens = 100'000;
    r.seconds[s].hit_tokens = 87'654;
    r.seconds[s].ttft_p50_ms = 11.25F;
    r.seconds[s].ttft_p99_ms = static_cast<float>(s);
  }
  r.node_series.resize(nodes);
  for (size_t n = 0; n < nodes; ++n) {
    r.node_series[n].id = "n" + std::to_string(n);
    // Node 0 does twice the others' work; the last one none.
    r.node_series[n].work_per_s.assign(seconds, n == 0 ? 2000.F : n + 1 == nodes ? 0.F : 1000.F);
  }
  return r;
}

PageFacts titled(std::string title) {
  PageFacts facts;
  facts.title = std::move(title);
  facts.slo_ttft_ms = 500;
  facts.slo_tpot_ms = 30;
  return facts;
}

std::string between(const std::string& page, const std::string& begin, const std::string& end) {
  const size_t at = page.find(begin);
  EXPECT_NE(at, std::string::npos) << begin;
  const size_t from = at + begin.size();
  return page.substr(from, page.find(end, from) - from);
}

bj::object data_of(const std::string& page) {
  const auto data = parse_json(between(page, "<script type=\"application/json\" id=\"data\">", "</script>"));
  EXPECT_TRUE(data.ok()) << data.status();
  return data.ok() ? data->as_object() : bj::object();
}

// Every element is closed by its own end tag, in order; nothing is fetched from elsewhere.
void expect_well_formed(const std::string& page) {
  const std::set<std::string> empty{"meta"};
  std::vector<std::string> open;
  for (size_t at = 0; (at = page.find('<', at)) != std::string::npos;) {
    const bool closing = page[at + 1] == '/';
    const size_t name_at = at + (closing ? 2 : 1);
    const std::string name = page.substr(name_at, page.find_first_of(" >\n", name_at) - name_at);
    at = page.find('>', at);
    ASSERT_NE(at, std::string::npos) << "<" << name;
    if (name == "!doctype" || empty.contains(name)) continue;
    if (closing) {
      ASSERT_FALSE(open.empty()) << "</" << name << "> closes nothing";
      EXPECT_EQ(open.back(), name);
      open.pop_back();
    } else {
      open.push_back(name);
      if (name == "script" || name == "style") at = page.find("</" + name, at);
    }
  }
  EXPECT_TRUE(open.empty()) << open.back();
  for (const char* foreign : {"src=", "href=", "@import", "url(", "fetch(", "https:"})
    EXPECT_EQ(page.find(foreign), std::string::npos) << foreign;
}

TEST(HtmlPage, HoldsTheNumbersAndTheirMeaning) {
  PageFacts facts = titled("t");
  facts.warmup_s = 60;
  facts.faults.push_back({Fault::Kind::kSlow, 42, 5, 2, 30});
  facts.steps.push_back({1.25, 321.5, 0.991, 222, true});
  std::vector<Result> results{result_of("affinity", 4, 100), result_of("round-robin", 4, 100)};
  results[0].has_faults = results[1].has_faults = true;
  results[0].faults.t95_s = -1;
  results[0].faults.hit_dip = 0.05;
  const std::string page = html_page(results, facts);
  expect_well_formed(page);
  for (const char* word :
       {"affinity (exact)", "12345", "87.6 %", "97.3 %", "33.0 ms", "99.50 %", "321.5",
        "slow: node 5, 2 times as slow, for 30 s", "hit fell by 5.0 points at worst and was not back at 95 %",
        "<b>round-robin</b>: there is nothing to compare hits with", "hit"})
    EXPECT_NE(page.find(word), std::string::npos) << word;
  const bj::object data = data_of(page);
  EXPECT_EQ(data.at("step_s").as_int64(), 1);
  EXPECT_EQ(data.at("faults").at(0).at("at_s").as_int64(), 42);
  const bj::object& run = data.at("runs").at(0).as_object();
  EXPECT_EQ(run.at("hit").as_array().size(), 100U);
  EXPECT_DOUBLE_EQ(run.at("hit").at(7).as_double(), 0.87654);
  EXPECT_DOUBLE_EQ(run.at("ttft_p50_ms").at(0).as_double(), 11.25);
  // Mean 1000: 2.0 = level 40, 1.0 = level 20, none = level 0.
  EXPECT_EQ(run.at("rows").at(0).as_string(), std::string(100, 'e'));
  EXPECT_EQ(run.at("rows").at(1).as_string(), std::string(100, 'K'));
  EXPECT_EQ(run.at("rows").at(3).as_string(), std::string(100, '0'));
}

TEST(HtmlPage, BeginsWithTheAnswerAndItsOrigin) {
  PageFacts facts = titled("troupe-sim plan");
  facts.answer = "3 nodes of study are enough for <it>.";
  facts.source = "trace a&b.csv";
  facts.command = "troupe-sim plan --trace 'a&b.csv'";
  facts.made = "troupe-sim 0.1.0, 2026-03-01 12:34 UTC";
  LoadStep step;
  step.nodes = 3;
  step.tpot_p99_ms = 12.5;
  facts.steps.push_back(step);
  Result r = result_of("affinity", 3, 10);
  r.losses = {{"too long for the <nodes>", 7}};
  const std::string page = html_page(std::span(&r, 1), facts);
  expect_well_formed(page);
  EXPECT_NE(page.find("</h1>\n<p class=\"answer\">3 nodes of study are enough for &lt;it&gt;.</p>"),
            std::string::npos);
  for (const char* word :
       {"Requests: trace a&amp;b.csv.", "troupe-sim 0.1.0, 2026-03-01 12:34 UTC: <code>troupe-sim plan",
        "Fleets that were tried", "<td>3</td>", "12.5 ms", "Why requests were lost",
        "7 too long for the &lt;nodes&gt;"})
    EXPECT_NE(page.find(word), std::string::npos) << word;
}

TEST(HtmlPage, AnIdleNodeIsNotADeadOne) {
  Result r = result_of("affinity", 4, 10);  // the last node does nothing
  for (NodeSeries& node : r.node_series) {
    node.up.assign(10, true);
    node.work_per_s[5] = 0;  // nobody works then
  }
  r.node_series[3].up[2] = r.node_series[3].up[5] = false;
  const bj::object data = data_of(html_page(std::span(&r, 1), titled("t")));
  EXPECT_EQ(data.at("runs").at(0).at("rows").at(3).as_string(), "--0--0----");
  EXPECT_EQ(data.at("runs").at(0).at("rows").at(1).as_string(), "KKKKK=KKKK");
}

TEST(HtmlPage, ComparesHitsWithAnInfiniteCacheIfThePoolSizeIsUnknown) {
  Result r = result_of("live", 2, 3);
  r.infinite_hit = 0.95;
  const std::string known = html_page(std::span(&r, 1), titled("t"));
  EXPECT_NE(known.find("one cache of the fleet's whole size would have found 90.0 %"), std::string::npos);
  EXPECT_NE(known.find("<td>97.3 %</td>"), std::string::npos);
  r.has_pool = false;
  const std::string page = html_page(std::span(&r, 1), titled("t"));
  EXPECT_NE(page.find("one that forgets nothing would have found 95.0 %"), std::string::npos);
  EXPECT_EQ(page.find("whole size would have"), std::string::npos);
  EXPECT_NE(page.find("<td>–</td>"), std::string::npos) << "of possible";
}

TEST(HtmlPage, HasColumnsOfTheQueueWhereThereIsOne) {
  Result r;
  EXPECT_EQ(html_page(std::span(&r, 1), {}).find("queue p50"), std::string::npos);
  r.queue.emplace();
  r.queue->waited = 4321;
  r.queue->wait_ms.p50 = 77;
  r.queue->refused_429 = 654;
  r.queue->refused_503 = 98;
  const std::string page = html_page(std::span(&r, 1), {});
  for (const char* text : {"queue p50", ">4321<", ">654<", ">98<", "77"})
    EXPECT_NE(page.find(text), std::string::npos) << text;
}

TEST(HtmlPage, EscapesNames) {
  Result r = result_of("<b>&\"'", 2, 3);
  r.profile = "</title><script>alert(1)</script>";
  r.node_series[0].id = "</script><!--";
  const std::string page = html_page(std::span(&r, 1), titled("<i>"));
  expect_well_formed(page);
  EXPECT_EQ(page.find("alert(1)</script>"), std::string::npos);
  EXPECT_NE(page.find("&lt;b&gt;&amp;&quot;&#39;"), std::string::npos);
  EXPECT_EQ(data_of(page).at("runs").at(0).at("row_names").at(0).as_string(), "</script><!--");
}

TEST(HtmlPage, StaysSmallForLongRunsAndLargeFleets) {
  const std::vector<Result> results(12, result_of("affinity", 1000, 10'000));
  const std::string page = html_page(results, titled("long"));
  EXPECT_LT(page.size(), 1U << 20);
  const bj::object data = data_of(page);
  const int64_t step = data.at("step_s").as_int64();
  EXPECT_EQ(step, 42);
  const bj::object& run = data.at("runs").at(11).as_object();
  EXPECT_EQ(run.at("arrived").as_array().size(), 239U);
  EXPECT_EQ(run.at("rows").at(0).as_string().size(), 239U);
  EXPECT_EQ(run.at("row_names").at(0).as_string(), "n0–n10");
  EXPECT_EQ(run.at("row_names").as_array().back().as_string(), "n990–n999");
  // The worst second of a bucket, not its mean.
  EXPECT_EQ(run.at("ttft_p99_ms").at(0).as_int64(), 41);
}

TEST(HtmlPage, EmptyRunIsStillAPage) {
  Result r;
  r.policy = "affinity";
  const std::string page = html_page(std::span(&r, 1), titled("none"));
  expect_well_formed(page);
  EXPECT_EQ(data_of(page).at("runs").at(0).at("rows").as_array().size(), 0U);
}

TEST(HtmlPage, PlotsEndWithTheLastArrival) {
  Result r = result_of("affinity", 2, 50);
  r.seconds.resize(80);
  const bj::object data = data_of(html_page(std::span(&r, 1), titled("drained")));
  EXPECT_EQ(data.at("runs").at(0).at("hit").as_array().size(), 50U);
  EXPECT_EQ(data.at("runs").at(0).at("rows").at(0).as_string().size(), 50U);
}

TEST(HtmlPage, DescribesEveryPolicy) {
  for (const std::string& policy : route::policy_names())
    EXPECT_FALSE(route::policy_info(policy).summary.empty()) << policy;
}

}  // namespace html_test
}  // namespace troupe::sim
