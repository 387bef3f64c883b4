#include "sim/fleet/faults.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/json/json.h"

namespace troupe::sim {

namespace {

constexpr size_t kFaultsMax = 100'000;
constexpr double kSecondsMax = 1e8;
constexpr int32_t kNodesMax = 100'000;

struct KindSpec {
  std::string_view name;
  Fault::Kind kind;
  bool lasts;  // needs for_s
};
constexpr std::array<KindSpec, 9> kKinds{{
    {"kill", Fault::Kind::kKill, false},
    {"return", Fault::Kind::kReturn, false},
    {"join", Fault::Kind::kJoin, false},
    {"drain", Fault::Kind::kDrain, true},
    {"slow", Fault::Kind::kSlow, true},
    {"stall", Fault::Kind::kStall, true},
    {"lose_reports", Fault::Kind::kLoseReports, true},
    {"lose_residency", Fault::Kind::kLoseResidency, false},
    {"restart_gateway", Fault::Kind::kRestartGateway, false},
}};

Status bad_key(std::string_view key, std::string_view what) {
  return invalid_argument(absl::StrCat("key '", to_absl(key), "': ", to_absl(what)));
}

Status read_number(const bj::value& value, std::string_view key, double least, double& out) {
  if (!value.is_number() || !(value.to_number<double>() >= least) ||
      value.to_number<double>() > kSecondsMax) {
    return bad_key(key, absl::StrCat("must be a number from ", least, " to ", kSecondsMax));
  }
  out = value.to_number<double>();
  return absl::OkStatus();
}

Status read_target(const bj::value& value, const KindSpec& kind, Fault& out) {
  const int64_t least = kind.kind == Fault::Kind::kJoin ? 1 : 0;
  if (!value.is_int64() || value.as_int64() < least || value.as_int64() > kNodesMax) {
    return bad_key(kind.name, absl::StrCat("must be a whole number from ", least, " to ", kNodesMax));
  }
  out.kind = kind.kind;
  out.target = static_cast<int32_t>(value.as_int64());
  return absl::OkStatus();
}

StatusOr<Fault> read_fault(std::string_view line) {
  TROUPE_ASSIGN_OR_RETURN(const bj::value root, parse_json(line));
  if (!root.is_object()) return invalid_argument("must be a JSON object, one a line");
  Fault fault;
  const KindSpec* kind = nullptr;
  bool has_at = false, has_for = false, has_factor = false;
  for (const auto& [name, value] : root.as_object()) {
    const std::string_view key(name.data(), name.size());
    const auto found =
        std::find_if(kKinds.begin(), kKinds.end(), [key](const KindSpec& k) { return k.name == key; });
    if (found != kKinds.end()) {
      if (kind != nullptr)
        return bad_key(key, absl::StrCat("there is '", to_absl(kind->name), "' already; one fault a line"));
      kind = &*found;
      TROUPE_RETURN_IF_ERROR(read_target(value, *kind, fault));
    } else if (key == "at_s") {
      TROUPE_RETURN_IF_ERROR(read_number(value, key, 0, fault.at_s));
      has_at = true;
    } else if (key == "for_s") {
      TROUPE_RETURN_IF_ERROR(read_number(value, key, 1e-3, fault.for_s));
      has_for = true;
    } else if (key == "factor") {
      TROUPE_RETURN_IF_ERROR(read_number(value, key, 1, fault.factor));
      has_factor = true;
    } else {
      return bad_key(
          key,
          "is not known; there are at_s, for_s, factor and one of kill, return, join, drain, slow, stall, "
          "lose_reports, lose_residency, restart_gateway");
    }
  }
  if (kind == nullptr)
    return invalid_argument("says no fault: one of kill, return, join, drain, slow, stall, lose_reports, …");
  if (!has_at) return bad_key("at_s", "is missing");
  if (kind->lasts != has_for)
    return bad_key("for_s", kind->lasts ? "is missing: how long" : "this fault has no end of its own");
  if ((kind->kind == Fault::Kind::kSlow) != has_factor) {
    return bad_key("factor", has_factor ? "belongs to 'slow'" : "is missing: how many times slower");
  }
  return fault;
}

}  // namespace

std::string_view fault_name(Fault::Kind kind) {
  for (const KindSpec& spec : kKinds) {
    if (spec.kind == kind) return spec.name;
  }
  return "";
}

StatusOr<std::vector<Fault>> parse_faults(std::string_view lines, std::string_view file_name) {
  std::vector<Fault> faults;
  for (int64_t number = 1; !lines.empty(); ++number) {
    const size_t end = std::min(lines.find('\n'), lines.size());
    const std::string_view line = lines.substr(0, end);
    lines.remove_prefix(std::min(end + 1, lines.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    auto fault = read_fault(line);
    const std::string said_at = absl::StrCat(to_absl(file_name), ":", number);
    if (!fault.ok()) return annotate(fault.status(), said_at);
    fault->said_at = said_at;
    if (faults.size() == kFaultsMax)
      return invalid_argument(absl::StrCat(to_absl(file_name), ": more than ", kFaultsMax, " faults"));
    faults.push_back(*fault);
  }
  std::stable_sort(faults.begin(), faults.end(),
                   [](const Fault& a, const Fault& b) { return a.at_s < b.at_s; });
  return faults;
}

Status check_faults(const std::vector<Fault>& faults, int32_t nodes, int32_t gateways) {
  constexpr double kNever = -1;
  // The time each node left, or is to leave; kNever: it is up.
  std::vector<double> gone_at(static_cast<size_t>(nodes), kNever);
  for (const Fault& fault : faults) {
    const std::string where = absl::StrCat(fault.said_at, fault.said_at.empty() ? "" : ": ", "fault '",
                                           to_absl(fault_name(fault.kind)), "' at ", fault.at_s, " s");
    if (fault.kind == Fault::Kind::kJoin) {
      gone_at.insert(gone_at.end(), static_cast<size_t>(fault.target), kNever);
      if (gone_at.size() > kNodesMax)
        return invalid_argument(absl::StrCat(where, ": more than ", kNodesMax, " nodes"));
      continue;
    }
    const bool of_gateway = fault.kind == Fault::Kind::kRestartGateway;
    const auto count = of_gateway ? gateways : static_cast<int32_t>(gone_at.size());
    if (fault.target >= count) {
      return invalid_argument(absl::StrCat(where, ": there is no ", of_gateway ? "gateway " : "node ",
                                           fault.target, ", only ", count));
    }
    if (of_gateway) continue;
    double& gone = gone_at[static_cast<size_t>(fault.target)];
    const bool up = gone == kNever;
    if ((fault.kind == Fault::Kind::kReturn) == up) {
      return invalid_argument(
          absl::StrCat(where, ": node ", fault.target, up ? " is up" : " is down", " then"));
    }
    if (!up && gone >= fault.at_s) {
      return invalid_argument(
          absl::StrCat(where, ": node ", fault.target, " may be draining until ", gone, " s"));
    }
    if (fault.kind == Fault::Kind::kKill) gone = fault.at_s;
    if (fault.kind == Fault::Kind::kDrain) gone = fault.at_s + fault.for_s;
    if (fault.kind == Fault::Kind::kReturn) gone = kNever;
  }
  return absl::OkStatus();
}

}  // namespace troupe::sim
