// Plain HTML first, so that the table can be read without a script; the numbers of the plots are
// html_data.cc's.

#include "sim/report/html.h"

#include <algorithm>
#include <array>
#include <functional>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gateway/route/policy/policy.h"
#include "sim/report/html_assets.h"
#include "sim/report/html_data.h"

namespace troupe::sim {

namespace {

std::string escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string percent(double share) {
  return absl::StrFormat("%.1f %%", share * 100);
}
std::string ms_text(double ms) {
  return ms < 1000 ? absl::StrFormat("%.*f ms", ms < 100 ? 1 : 0, ms) : absl::StrFormat("%.1f s", ms / 1e3);
}

struct Column {
  std::string_view name, words;
  std::function<std::string(const Result&)> text;
  std::function<double(const Result&)> rank;  // the highest is the best; empty: no best

  // The text of the best; empty if no other is visibly worse.
  std::string best(std::span<const Result> results) const {
    const auto alike = [&](const Result& r) { return text(r) == text(results.front()); };
    if (!rank || std::all_of(results.begin(), results.end(), alike)) return {};
    const auto worse = [&](const Result& a, const Result& b) { return rank(a) < rank(b); };
    return text(*std::max_element(results.begin(), results.end(), worse));
  }
};

// Columns for results of which some have queues.
std::vector<Column> queue_columns() {
  const auto of = [](const Result& r) { return r.queue.value_or(QueueFigures()); };
  return {
      {"429",
       "of the lost, refused because their gateway's queue was full, or their turn would have come late",
       [of](const Result& r) { return absl::StrCat(of(r).refused_429); },
       [of](const Result& r) { return -static_cast<double>(of(r).refused_429); }},
      {"503", "of the lost, refused after they had waited in that queue for as long as one may",
       [of](const Result& r) { return absl::StrCat(of(r).refused_503); },
       [of](const Result& r) { return -static_cast<double>(of(r).refused_503); }},
      {"waited", "requests that waited in their gateway's queue",
       [of](const Result& r) { return absl::StrCat(of(r).waited); },
       [of](const Result& r) { return -static_cast<double>(of(r).waited); }},
      {"queue p50", "time in that queue that half of these stayed below",
       [of](const Result& r) { return ms_text(of(r).wait_ms.p50); },
       [of](const Result& r) { return -of(r).wait_ms.p50; }},
      {"p99", "the same for 99 of a hundred", [of](const Result& r) { return ms_text(of(r).wait_ms.p99); },
       [of](const Result& r) { return -of(r).wait_ms.p99; }},
  };
}

std::vector<Column> columns() {
  return {
      {"requests",
       "requests that arrived after the warm-up",
       [](const Result& r) { return absl::StrCat(r.requests); },
       {}},
      {"lost", "of these, answered by an error or never admitted by the end",
       [](const Result& r) { return absl::StrCat(r.lost); }, [](const Result& r) { return -r.lost; }},
      {"hit",
       "share of prompt tokens that were still in a node's cache, so that nobody had to compute them again. "
       "The figure that routing is about: every point of it is work saved",
       [](const Result& r) { return percent(r.hit_tokens); }, [](const Result& r) { return r.hit_tokens; }},
      {"of possible",
       "that hit against what one single cache as large as all nodes' together would have reached; a router "
       "can come near 100 %, hardly above",
       [](const Result& r) {
         return r.has_pool && r.pooled_lru_hit > 0 ? percent(r.hit_tokens / r.pooled_lru_hit)
                                                   : std::string("–");
       },
       {}},
      {"imbalance",
       "how unevenly work is spread: standard deviation over nodes against their mean, in windows of 100 s. "
       "0 is even; above 0.1 somebody idles while somebody queues",
       [](const Result& r) { return absl::StrFormat("%.3f", r.work_cov); },
       [](const Result& r) { return -r.work_cov; }},
      {"TTFT p50", "time to first token that half of the requests stay below",
       [](const Result& r) { return ms_text(r.ttft_ms.p50); },
       [](const Result& r) { return -r.ttft_ms.p50; }},
      {"p90", "the same for nine of ten", [](const Result& r) { return ms_text(r.ttft_ms.p90); },
       [](const Result& r) { return -r.ttft_ms.p90; }},
      {"p99", "the same for 99 of a hundred", [](const Result& r) { return ms_text(r.ttft_ms.p99); },
       [](const Result& r) { return -r.ttft_ms.p99; }},
      {"TPOT", "mean time between two tokens of an answer once it runs",
       [](const Result& r) { return ms_text(r.tpot_mean_ms); },
       [](const Result& r) { return -r.tpot_mean_ms; }},
      {"good", "share of requests answered inside both limits (above). Lost ones are not good",
       [](const Result& r) { return absl::StrFormat("%.2f %%", r.goodput * 100); },
       [](const Result& r) { return r.goodput; }},
  };
}

// REQUIRES: not empty.
void append_table(std::string& out, std::span<const Result> results) {
  std::vector<Column> all = columns();
  if (std::any_of(results.begin(), results.end(), [](const Result& r) { return r.queue.has_value(); })) {
    std::vector<Column> more = queue_columns();
    std::move(more.begin(), more.end(), std::back_inserter(all));
  }
  absl::StrAppend(&out, "<div class=\"scroll\"><table>",
                  results.size() > 1 ? "<caption class=\"dim\">Green: the best of a column.</caption>" : "",
                  "<thead><tr><th scope=\"col\">policy</th>");
  for (const Column& column : all) {
    absl::StrAppend(&out, "<th scope=\"col\" title=\"", escape(column.words), "\">", escape(column.name),
                    "</th>");
  }
  out += "</tr></thead><tbody>\n";
  for (const Result& r : results) {
    absl::StrAppend(&out, "<tr><th scope=\"row\">", escape(run_name(r)), "</th>");
    for (const Column& column : all) {
      const std::string text = column.text(r);
      absl::StrAppend(&out, text == column.best(results) ? "<td class=\"best\">" : "<td>", text, "</td>");
    }
    out += "</tr>\n";
  }
  out += "</tbody></table></div>\n<details open><summary>What the columns mean</summary><dl>\n";
  for (const Column& column : all) {
    absl::StrAppend(&out, "<dt>", escape(column.name), "</dt><dd>", escape(column.words), "</dd>\n");
  }
  out += "</dl></details>\n<details><summary>How the policies choose a node</summary><dl>\n";
  for (const Result& r : results) {
    // A live run's is whatever the server's was.
    const bool known = route::check_policy(r.policy).ok();
    absl::StrAppend(&out, "<dt>", escape(run_name(r)), "</dt><dd>",
                    known ? escape(route::policy_info(r.policy).summary) : "", "</dd>\n");
  }
  out += "</dl></details>\n";
}

std::string fault_words(const FaultFigures& f) {
  std::string hit = "there is nothing to compare hits with, for no answer began in the 10 s before, or after";
  if (f.hit_dip && f.t95_s) {
    hit = absl::StrFormat("hit fell by %.1f points at worst and ", *f.hit_dip * 100);
    hit += *f.t95_s < 0 ? "was not back at 95 % of before by the end"
                        : absl::StrFormat("was back at 95 %% of before after %.0f s", *f.t95_s);
  }
  const auto ms = [](const std::optional<double>& value) { return value ? ms_text(*value) : "none"; };
  return absl::StrCat(hit, "; worst second's TTFT p99 ", ms(f.p99_peak_ms), " (before: ", ms(f.p99_before_ms),
                      "); longest pause in a running answer ", ms_text(f.stall_max_ms), "; ", f.resumed,
                      " answers went on at another node");
}

void append_faults(std::string& out, std::span<const Result> results, const PageFacts& facts) {
  if (facts.faults.empty()) return;
  out += "<h2>What went wrong on purpose</h2>\n<ol>\n";
  for (const Fault& fault : facts.faults) {
    absl::StrAppend(&out, "<li>", fault.at_s, " s: ", escape(fault_text(fault)), "</li>\n");
  }
  out += "</ol>\n<p class=\"dim\">⚡ in the plots. Measured around the first one:</p>\n<ul>\n";
  for (const Result& r : results) {
    if (!r.has_faults) continue;
    absl::StrAppend(&out, "<li><b>", escape(run_name(r)), "</b>: ", fault_words(r.faults), "</li>\n");
  }
  out += "</ul>\n";
}

void append_steps(std::string& out, const PageFacts& facts) {
  if (facts.steps.empty()) return;
  const bool of_nodes = facts.steps.front().nodes > 0;
  absl::StrAppend(
      &out, "<h2>", of_nodes ? "Fleets" : "Loads",
      " that were tried</h2>\n<div class=\"scroll\"><table><thead><tr><th scope=\"col\">",
      of_nodes ? "nodes" : "load",
      "</th><th scope=\"col\">requests/s</th><th scope=\"col\">good</th><th scope=\"col\">TTFT p99"
      "</th><th scope=\"col\">TPOT p99</th><th scope=\"col\">holds</th></tr></thead><tbody>\n");
  for (const LoadStep& step : facts.steps) {
    absl::StrAppend(&out, "<tr><td>",
                    of_nodes ? absl::StrCat(step.nodes) : absl::StrFormat("%.4g", step.load), "</td><td>",
                    absl::StrFormat("%.1f", step.rate), "</td><td>", percent(step.goodput), "</td><td>",
                    ms_text(step.ttft_p99_ms), "</td><td>", ms_text(step.tpot_p99_ms), "</td><td>",
                    step.holds ? "yes" : "no", "</td></tr>\n");
  }
  out += "</tbody></table></div>\n";
}

void append_losses(std::string& out, std::span<const Result> results) {
  if (std::all_of(results.begin(), results.end(), [](const Result& r) { return r.losses.empty(); })) return;
  out += "<h2>Why requests were lost</h2>\n<ul>\n";
  for (const Result& r : results) {
    for (const Loss& loss : r.losses) {
      absl::StrAppend(&out, "<li><b>", escape(run_name(r)), "</b>: ", loss.count, " ", escape(loss.why),
                      "</li>\n");
    }
  }
  out += "</ul>\n";
}

// The page's origin: requests, command, version, date.
void append_origin(std::string& out, const PageFacts& facts) {
  if (!facts.source.empty())
    absl::StrAppend(&out, "<p class=\"dim\">Requests: ", escape(facts.source), ".</p>\n");
  if (facts.command.empty() && facts.made.empty()) return;
  absl::StrAppend(&out, "<p class=\"dim made\">Made by ", escape(facts.made), ": <code>",
                  escape(facts.command), "</code></p>\n");
}

// The bound to compare hits with: an infinite cache if the fleet's memory is unknown.
std::string possible(const Result& r) {
  if (r.has_pool)
    return absl::StrCat("one cache of the fleet's whole size would have found ", percent(r.pooled_lru_hit));
  return absl::StrCat("one that forgets nothing would have found ", percent(r.infinite_hit));
}

// The conclusion in a sentence or two.
void append_summary(std::string& out, std::span<const Result> results) {
  const auto by_hit = [](const Result& a, const Result& b) { return a.hit_tokens < b.hit_tokens; };
  const auto by_good = [](const Result& a, const Result& b) { return a.goodput < b.goodput; };
  const Result& hit = *std::max_element(results.begin(), results.end(), by_hit);
  const Result& good = *std::max_element(results.begin(), results.end(), by_good);
  if (results.size() == 1) {
    absl::StrAppend(&out, "<p><b>", escape(run_name(hit)), "</b> found <b>", percent(hit.hit_tokens),
                    "</b> of all prompt tokens in a cache; ", possible(hit), ". <b>", percent(hit.goodput),
                    "</b> of the requests were answered inside the limits.</p>\n");
    return;
  }
  absl::StrAppend(&out, "<p>Most prompt tokens were found in a cache by <b>", escape(run_name(hit)), "</b> (",
                  percent(hit.hit_tokens), "; ", possible(hit), "); ");
  const Result& least = *std::min_element(results.begin(), results.end(), by_good);
  if (percent(least.goodput) == percent(good.goodput)) {
    absl::StrAppend(&out, "inside the limits all of them answered the same share of requests, ",
                    percent(good.goodput), ".</p>\n");
    return;
  }
  absl::StrAppend(&out, "most requests were answered inside the limits by <b>", escape(run_name(good)),
                  "</b> (", percent(good.goodput), ").</p>\n");
}

struct Plot {
  const char *id, *title, *label;
};
constexpr std::array kPlotsAbove{
    Plot{"hit", "Hit over time", "Share of prompt tokens found in a cache. Higher is better."},
    Plot{"ttft50", "Time to first token: the usual request",
         "Median time to first token, mean of the seconds of each point. Lower is better; the scale is "
         "logarithmic."},
    Plot{"ttft99", "Time to first token: the unlucky one of a hundred",
         "TTFT p99 of the worst second of each point. Lower is better; the scale is logarithmic. A line that "
         "climbs "
         "and never returns is a fleet that cannot keep up."},
};
constexpr std::array kPlotsBelow{
    Plot{"waiting", "Requests waiting",
         "Requests queued at all nodes together. Growing means more work than nodes."},
    Plot{"arrived", "Requests arriving", "What was asked of the fleet: requests a second."},
};

void append_plot(std::string& out, const Plot& plot) {
  absl::StrAppend(&out, "<h2>", plot.title, "</h2>\n<figure id=\"", plot.id, "\" data-label=\"", plot.title,
                  ": ", plot.label, "\"><figcaption>", plot.label, "</figcaption></figure>\n");
}

}  // namespace

std::string html_page(std::span<const Result> results, const PageFacts& facts) {
  const Result& first = results.front();
  std::string out =
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n";
  absl::StrAppend(&out, "<title>", escape(facts.title), "</title>\n<style>", to_absl(kPageStyle),
                  "</style>\n</head>\n<body>\n<h1>", escape(facts.title), "</h1>\n");
  if (!facts.answer.empty()) absl::StrAppend(&out, "<p class=\"answer\">", escape(facts.answer), "</p>\n");
  absl::StrAppend(&out, "<p class=\"dim\">");
  if (facts.live) {
    absl::StrAppend(&out, "Measured at ", escape(first.profile), ", which answered from ", first.nodes,
                    first.nodes == 1 ? " node, " : " nodes, ");
  } else {
    absl::StrAppend(&out, "Simulated, not measured: ", first.nodes, first.nodes == 1 ? " node" : " nodes",
                    " as profile “", escape(first.profile), "” has it, ", first.gateways,
                    first.gateways == 1 ? " gateway, " : " gateways, ");
  }
  absl::StrAppend(&out, absl::StrFormat("%.0f", first.duration_s), " s counted after ",
                  absl::StrFormat("%.0f", facts.warmup_s), " s of warm-up, seed ", first.seed,
                  ". Limits for a good answer: first token within ", ms_text(facts.slo_ttft_ms),
                  ", then a token every ", ms_text(facts.slo_tpot_ms), " on average.</p>\n");
  append_origin(out, facts);
  append_summary(out, results);
  append_table(out, results);
  append_losses(out, results);
  append_steps(out, facts);
  append_faults(out, results, facts);
  out += "<div class=\"legend\" id=\"legend\" role=\"group\" aria-label=\"Show or hide policies\"></div>\n";
  for (const Plot& plot : kPlotsAbove) append_plot(out, plot);
  out +=
      "<h2>Work of every node</h2>\n<p class=\"dim\">A row is a node, from left to right is time; the colour "
      "is its "
      "work against the mean of all nodes in that moment. Even grey is good balance; a red streak is a node "
      "that "
      "gets too much.</p>\n<p class=\"dim\">half or less <span class=\"ramp\"></span> twice the mean or "
      "more; "
      "idle as half; <span class=\"hole\"></span> dead, or not there</p>\n<div id=\"heat\"></div>\n";
  for (const Plot& plot : kPlotsBelow) append_plot(out, plot);
  absl::StrAppend(
      &out, "<noscript><p>The plots need JavaScript; the table above does not.</p></noscript>\n",
      "<div id=\"tip\" role=\"status\" hidden></div>\n<script type=\"application/json\" id=\"data\">",
      html_data(results, facts), "</script>\n<script>", to_absl(kPageScript),
      "</script>\n</body>\n</html>\n");
  return out;
}

}  // namespace troupe::sim
