#include "sim/trace/lengths_only.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "sim/trace/block_chain.h"
#include "sim/trace/block_names.h"

namespace troupe::sim {

namespace {

// Kinds of text, so that a session and a set of one name differ.
constexpr uint64_t kOfSet = 1, kOfSession = 2, kOfOne = 3;

}  // namespace

Status LengthsOnly::check(const TraceRequest& request) {
  const int64_t blocks = (int64_t{request.input_tokens} + request.output_tokens) / request.block_tokens;
  if (blocks <= kBlocksMax) return absl::OkStatus();
  return invalid_argument(absl::StrCat("field 'block_size': is ", request.block_tokens,
                                       ", so prompt and answer have ", blocks, " blocks; at most ",
                                       kBlocksMax));
}

// The content behind the set's prefix.
uint64_t LengthsOnly::rest_of(const TraceRequest& request) {
  if (request.session == 0) return mix(kOfOne, static_cast<uint64_t>(counts_.requests));
  Talk& talk = talks_.touch(block_name(request.session));
  if (request.input_tokens < talk.prompt_tokens) {
    talk.text += 1;
  } else if (talk.prompt_tokens > 0) {
    counts_.of_sessions += 1;
  }
  talk.prompt_tokens = request.input_tokens;
  return mix(mix(kOfSession, request.session), talk.text);
}

void LengthsOnly::name_blocks(TraceRequest& request) {
  counts_.requests += 1;
  const int32_t prefix = request.set == 0 ? 0 : request.prefix_tokens;
  counts_.of_sets += prefix > 0 ? 1 : 0;
  counts_.vague_sets += request.set != 0 && prefix == 0 ? 1 : 0;
  const int32_t all = request.input_tokens + request.output_tokens, block = request.block_tokens;
  request.blocks.resize(static_cast<size_t>(all / block));
  TextEnd end;
  if (prefix > 0) end = append(end, {mix(kOfSet, request.set), prefix}, block, request.blocks.data());
  append(end, {rest_of(request), all - prefix}, block, request.blocks.data());
  const auto answer = request.blocks.begin() + request.input_tokens / block;
  request.output_blocks.assign(answer, request.blocks.end());
  request.blocks.erase(answer, request.blocks.end());
}

}  // namespace troupe::sim
