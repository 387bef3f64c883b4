#include "worker/text/answer/call_writer.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace troupe {

CallWriter::CallWriter(Options options) : options_(std::move(options)) {}

std::string CallWriter::made_id() const {
  constexpr std::string_view kDigits = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  constexpr size_t kShortBytes = 9;
  const Hash128 hash = hash_bytes(absl::StrCat(options_.answer_id, "/", options_.choice, "/", count_));
  if (!options_.short_ids) return "call_" + hash.hex().substr(0, 24);
  std::string id;
  for (uint64_t rest = hash.lo; id.size() < kShortBytes; rest /= kDigits.size())
    id += kDigits[rest % kDigits.size()];
  return id;
}

void CallWriter::begin(std::string_view name, std::string_view id) {
  name_ = name;
  open_ = true;
  has_arguments_ = false;
  is_left_out_ = !options_.parallel && count_ > 0;
  if (!is_left_out_) {
    ToolCall& call = delta_->calls.emplace_back();
    call.index = count_;
    call.id = id.empty() ? made_id() : std::string(id);
    call.name = name;
  }
  ++count_;
}

ToolCall& CallWriter::piece() {
  const int32_t index = count_ - 1;
  if (delta_->calls.empty() || delta_->calls.back().index != index)
    delta_->calls.emplace_back().index = index;
  return delta_->calls.back();
}

void CallWriter::arguments(std::string_view text) {
  if (text.empty() || !open_) return;
  has_arguments_ = true;
  if (!is_left_out_) piece().arguments += text;
}

void CallWriter::end() {
  if (open_ && !has_arguments_) arguments("{}");
  open_ = false;
}

}  // namespace troupe
