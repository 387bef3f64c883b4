// Workloads like published data, compared with the published figures: those of the data sets' own tables
// (tokens; mean, median, p90, p99), of ServeGen's and of Mooncake's.

#include "sim/workload/presets.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

namespace troupe::sim {
namespace {

struct Figures {
  double mean = 0, p50 = 0, p90 = 0, p99 = 0;
};

Figures figures_of(std::vector<double> values) {
  EXPECT_GT(values.size(), 1000u);
  std::sort(values.begin(), values.end());
  const auto at = [&](double share) {
    return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
  };
  double sum = 0;
  for (const double value : values) sum += value;
  return {sum / static_cast<double>(values.size()), at(0.5), at(0.9), at(0.99)};
}

void expect_near(const Figures& made, const Figures& published, double share, double tail_share) {
  EXPECT_NEAR(made.mean / published.mean, 1, share);
  EXPECT_NEAR(made.p50 / published.p50, 1, share);
  EXPECT_NEAR(made.p90 / published.p90, 1, share);
  EXPECT_NEAR(made.p99 / published.p99, 1, tail_share);
}

void for_each(const PersonaWorkload& w, const std::function<void(const TraceRequest&)>& take) {
  auto source = PersonaSource::make(w, 1);
  ASSERT_TRUE(source.ok()) << source.status();
  TraceRequest request;
  while (*(*source)->next(request)) take(request);
}

// Lengths of every card, user turn and answer.
struct Lengths {
  std::vector<double> cards, users, answers;
};
Lengths lengths_of(PersonaWorkload w) {
  w.personas = 4000;
  w.zipf = 0;  // every card is seen
  w.rate = 200;
  w.duration_s = 300;
  Lengths out;
  std::map<uint64_t, bool> seen;
  for_each(w, [&](const TraceRequest& r) {
    if (seen.emplace(r.set, true).second) out.cards.push_back(r.prefix_tokens - w.system_tokens);
    if (r.turn == 1) out.users.push_back(r.input_tokens - r.prefix_tokens);
    out.answers.push_back(r.output_tokens);
  });
  return out;
}

TEST(WorkloadPresets, CardsAndTurnsHaveThePublishedLengths) {
  const std::map<std::string, Figures> cards{{"rpbench-character", {431, 353, 854, 1201}},
                                             {"rpbench-scene", {1218, 1235, 1376, 1645}},
                                             {"charactereval", {621, 532, 1116, 1898}},
                                             {"chatharuhi", {191, 154, 349, 675}}};
  const std::map<std::string, Figures> turns{{"charactereval", {24, 20, 44, 91}},
                                             {"chatharuhi", {27, 19, 57, 110}}};
  EXPECT_EQ(preset_names().size(), cards.size() + 1);
  for (const std::string& name : preset_names()) {
    if (name == "study") continue;
    SCOPED_TRACE(name);
    const Lengths made = lengths_of(workload_like(name));
    expect_near(figures_of(made.cards), cards.at(name), 0.12, 0.12);
    if (!turns.contains(name)) continue;
    expect_near(figures_of(made.users), turns.at(name), 0.1, 0.25);
    expect_near(figures_of(made.answers), turns.at(name), 0.1, 0.25);
  }
}

TEST(WorkloadPresets, ConversationsHaveCharacterEvalsLengths) {
  std::map<uint64_t, double> turns;
  PersonaWorkload w = workload_like("charactereval");
  w.think_s = 1;  // hardly any conversation is running at the begin or the end
  w.duration_s = 600;
  for_each(w, [&](const TraceRequest& r) {
    if (r.turn == 1) turns[r.session] = 0;
    if (turns.contains(r.session)) turns[r.session] += 2;  // a question and its answer
  });
  std::vector<double> both;
  for (const auto& [session, count] : turns) both.push_back(count);
  const Figures made = figures_of(both);
  EXPECT_NEAR(made.mean, 6.9, 0.4);
  EXPECT_NEAR(made.p50, 5, 1);
  EXPECT_NEAR(made.p90, 14, 2);
  EXPECT_NEAR(made.p99, 29, 4);
}

// Slope of the logarithms of rank and count, ranks 1 to 50.
double popularity_slope(std::map<uint64_t, double> count_of) {
  std::vector<double> counts;
  for (const auto& [set, count] : count_of) counts.push_back(count);
  std::sort(counts.begin(), counts.end(), std::greater<>());
  double x = 0, y = 0, xx = 0, xy = 0;
  for (int rank = 1; rank <= 50; ++rank) {
    const double a = std::log(rank), b = std::log(counts[static_cast<size_t>(rank - 1)]);
    x += a, y += b, xx += a * a, xy += a * b;
  }
  return (50 * xy - x * y) / (50 * xx - x * x);
}

double cv_of(const std::vector<double>& values) {
  double sum = 0, squares = 0;
  for (const double value : values) sum += value, squares += value * value;
  const double n = static_cast<double>(values.size()), mean = sum / n;
  return std::sqrt(squares / n - mean * mean) / mean;
}

std::vector<double> gaps_between_starts(const PersonaWorkload& w) {
  std::vector<double> gaps;
  Duration last{};
  for_each(w, [&](const TraceRequest& r) {
    if (r.turn != 1) return;
    if (last > Duration::zero()) gaps.push_back(static_cast<double>((r.at - last).count()) / 1e9);
    last = r.at;
  });
  return gaps;
}

TEST(WorkloadPresets, PopularityAndGapsEqualServeGensAndMooncakes) {
  PersonaWorkload w = workload_like("rpbench-character");
  w.duration_s = 4000;
  std::map<uint64_t, double> count_of;
  std::map<uint64_t, Duration> last;
  std::vector<double> gaps;
  for_each(w, [&](const TraceRequest& r) {
    if (r.turn == 1) count_of[r.set] += 1;
    const auto [before, is_new] = last.try_emplace(r.session, r.at);
    // Gaps that began too late for long ones to be seen do not count.
    if (!is_new && before->second < std::chrono::seconds(2000))
      gaps.push_back(static_cast<double>((r.at - before->second).count()) / 1e9);
    before->second = r.at;
  });
  EXPECT_NEAR(popularity_slope(count_of), -1.31, 0.08);
  const Figures gap = figures_of(gaps);
  EXPECT_NEAR(gap.p50, 120, 3);
  EXPECT_NEAR(gap.p90, 433, 50);
  EXPECT_NEAR(gap.p99, 929, 150);
  EXPECT_NEAR(cv_of(gaps_between_starts(w)), 1.32, 0.05);
}

TEST(WorkloadPresets, GapsAreAsIrregularAsConfiguredAtTheSameRate) {
  for (const double cv : {0.3, 1.0, 1.32, 5.3}) {
    const PersonaWorkload w{.turns = 1, .rate = 100, .duration_s = 2000, .arrival_cv = cv};
    const auto gaps = gaps_between_starts(w);
    EXPECT_NEAR(cv_of(gaps) / cv, 1, 0.06) << cv;
    EXPECT_NEAR(static_cast<double>(gaps.size()) / 2000, 100, 5) << cv;
  }
}

TEST(WorkloadPresets, IrregularGapsFollowTheRampAndTheBurst) {
  PersonaWorkload w{.turns = 1, .ramp_s = 200, .rate = 100, .duration_s = 500, .arrival_cv = 1.5};
  w.burst = Burst{3, std::chrono::seconds(150), std::chrono::seconds(150)};
  std::vector<double> count(5);  // per hundred seconds
  for_each(w,
           [&](const TraceRequest& r) { count[static_cast<size_t>(r.at / std::chrono::seconds(100))] += 1; });
  const double expected[] = {2500, 3125 + 3 * 4375, 30'000, 10'000, 10'000};
  for (size_t i = 0; i < count.size(); ++i) EXPECT_NEAR(count[i] / expected[i], 1, 0.08) << i;
}

TEST(WorkloadPresets, TheStudyIsTheDefault) {
  EXPECT_EQ(preset_names().front(), "study");
  const PersonaWorkload study = workload_like("study"), plain;
  EXPECT_EQ(study.card_tokens, plain.card_tokens);
  EXPECT_EQ(study.zipf, 0.9);
  EXPECT_EQ(study.arrival_cv, 1);
  for (const std::string& name : preset_names())
    EXPECT_TRUE(check_workload(workload_like(name)).ok()) << name;
}

}  // namespace
}  // namespace troupe::sim
