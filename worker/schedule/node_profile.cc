#include "worker/schedule/node_profile.h"

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/program_path.h"
#include "common/settings/schema.h"

namespace troupe {

namespace {

namespace fs = std::filesystem;

// A file's keys and where their values go. What no key has set yet stands at kMissing, which none may be.
class ProfileFile {
 public:
  ProfileFile() : schema_("profile", "a node") {
    NodeProfile& p = profile_;
    StepCosts& c = profile_.costs;
    // Token counts stay 32-bit in the scheduler.
    count("kv_cache_tokens", &p.kv_cache_tokens, 1 << 30);
    count("block_size", &p.block_size, 1024);
    count("max_num_seqs", &p.max_num_seqs, 65536);
    count("max_num_batched_tokens", &p.max_num_batched_tokens, 1 << 20);
    count("max_model_len", &p.max_model_len, 1 << 24);
    schema_.add("step.overlap", &overlap_, "").choices({"max", "sum"});
    cost("step.overhead_us", &c.overhead_us);
    cost("step.weights_us", &c.weights_us);
    cost("step.decode_token_us", &c.decode_token_us);
    cost("step.decode_context_ns", &c.decode_context_ns);
    optional_cost("step.prefill_context_ns", &c.prefill_context_ns);
    cost("step.prefill_token_us", &c.prefill_token_us);
    cost("step.prefill_pair_ns", &c.prefill_pair_ns);
  }

  SettingsSchema& schema() { return schema_; }
  // After the schema has read a file.
  StatusOr<NodeProfile> profile(std::string_view file_name);

 private:
  static constexpr int64_t kMissing = -1;

  void count(std::string_view key, int64_t* target, int64_t max) {
    *target = kMissing;
    schema_.add(key, target, "").range(1, static_cast<double>(max));
    counts_.emplace_back(key, target);
  }
  void cost(std::string_view key, double* target) {
    *target = kMissing;
    optional_cost(key, target);
    costs_.emplace_back(key, target);
  }
  // A field that no key has set stays zero.
  void optional_cost(std::string_view key, double* target) {
    constexpr double kMax = 1e9;
    schema_.add(key, target, "").range(0, kMax);
  }
  Status check_complete() const;

  NodeProfile profile_;
  std::string overlap_;
  SettingsSchema schema_;
  std::vector<std::pair<std::string_view, const int64_t*>> counts_;
  std::vector<std::pair<std::string_view, const double*>> costs_;
};

Status ProfileFile::check_complete() const {
  std::string_view missing = overlap_.empty() ? "step.overlap" : "";
  for (const auto& [key, value] : costs_) missing = *value < 0 ? key : missing;
  for (const auto& [key, value] : counts_) missing = *value < 0 ? key : missing;
  if (missing.empty()) return absl::OkStatus();
  return invalid_argument(
      absl::StrCat(to_absl(missing), ": is missing; a profile names every key but step.prefill_context_ns"));
}

// Combinations that no node can have.
Status check_possible_node(const NodeProfile& p) {
  if (p.max_model_len > p.kv_cache_tokens) {
    return invalid_argument(absl::StrCat("max_model_len: ", p.max_model_len, " is more than kv_cache_tokens ",
                                         p.kv_cache_tokens, "; one request of full length must fit"));
  }
  if (p.block_size > p.kv_cache_tokens) {
    return invalid_argument(
        absl::StrCat("block_size: ", p.block_size, " is more than kv_cache_tokens ", p.kv_cache_tokens));
  }
  if (p.max_num_batched_tokens < p.max_num_seqs) {
    return invalid_argument(absl::StrCat("max_num_batched_tokens: ", p.max_num_batched_tokens,
                                         " is less than max_num_seqs ", p.max_num_seqs,
                                         "; a step must hold one token of every running request"));
  }
  if (p.costs.overhead_us + p.costs.weights_us <= 0) {
    return invalid_argument("step.weights_us: with step.overhead_us it must be more than 0; steps take time");
  }
  if (p.costs.prefill_token_us <= 0) {
    return invalid_argument("step.prefill_token_us: must be more than 0; prompts take time");
  }
  return absl::OkStatus();
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".yaml") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

StatusOr<NodeProfile> ProfileFile::profile(std::string_view file_name) {
  Status status = check_complete();
  if (status.ok()) status = check_possible_node(profile_);
  if (!status.ok()) return annotate(status, file_name);
  profile_.costs.overlaps = overlap_ == "max";
  profile_.name = fs::path(file_name).stem().string();
  return profile_;
}

}  // namespace

StatusOr<NodeProfile> parse_node_profile(std::string_view yaml, std::string_view file_name) {
  ProfileFile file;
  TROUPE_RETURN_IF_ERROR(file.schema().load_yaml(yaml, file_name));
  return file.profile(file_name);
}

StatusOr<NodeProfile> load_node_profile(const std::string& name_or_path) {
  fs::path path = name_or_path;
  if (path.extension() != ".yaml") {
    TROUPE_ASSIGN_OR_RETURN(const std::string root, find_program_files("configs/sim"));
    const fs::path folder = fs::path(root) / "configs/sim";
    path = folder / (name_or_path + ".yaml");
    std::error_code error;
    if (name_or_path.find('/') != std::string::npos || !fs::is_regular_file(path, error)) {
      return absl::NotFoundError(absl::StrCat("there is no profile '", name_or_path, "' in ", folder.string(),
                                              ", which has: ", absl::StrJoin(names_in(folder), ", "),
                                              "; the path of a file must end in .yaml"));
    }
  }
  ProfileFile file;
  TROUPE_RETURN_IF_ERROR(file.schema().load_yaml_file(path.string()));
  return file.profile(path.string());
}

SchedulerConfig scheduler_config(const NodeProfile& profile, SchedulerConfig rules) {
  rules.block_size = static_cast<int32_t>(profile.block_size);
  rules.block_count = static_cast<int32_t>(profile.kv_cache_tokens / profile.block_size);
  rules.max_num_seqs = static_cast<int32_t>(profile.max_num_seqs);
  rules.max_num_batched_tokens = static_cast<int32_t>(profile.max_num_batched_tokens);
  rules.max_model_len = static_cast<int32_t>(profile.max_model_len);
  return rules;
}

}  // namespace troupe
