#include "worker/http/embeddings.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "worker/engine/engine_errors.h"
#include "worker/http/output_channel.h"

namespace troupe {

namespace {

// Inputs in the engine at once: enough to fill a step with short texts, and few among its places.
constexpr size_t kInputsAtOnce = 16;
constexpr Duration kFullEngineWait = std::chrono::milliseconds(20);
// All requests' vectors together: 128 MiB.
constexpr int64_t kNumbersMax = int64_t{32} << 20;

// The inputs of one request, each from its submission to its vector.
class InputsUnderWay {
 public:
  InputsUnderWay(Executor executor, Engine& engine, std::vector<EngineRequest> inputs)
      : engine_(engine),
        channel_(std::make_shared<OutputChannel>(executor)),
        inputs_(std::move(inputs)),
        vectors_(inputs_.size()) {}
  ~InputsUnderWay() {
    for (const RequestId id : ids_) engine_.cancel(id);
  }
  InputsUnderWay(const InputsUnderWay&) = delete;
  InputsUnderWay& operator=(const InputsUnderWay&) = delete;

  bool is_done() const { return finished_count_ == inputs_.size(); }
  OutputChannel& channel() { return *channel_; }
  std::vector<std::vector<float>> take_vectors() { return std::move(vectors_); }
  int64_t cached_count() const { return cached_count_; }

  bool is_idle() const { return ids_.size() == finished_count_; }
  // Submits as many as may be there. A full engine is an error only for the first one.
  Status submit_more() {
    while (ids_.size() < inputs_.size() && ids_.size() - finished_count_ < kInputsAtOnce) {
      const size_t index = ids_.size();
      auto sink = [channel = channel_, index](EngineOutput piece) {
        piece.choice = static_cast<int32_t>(index);
        channel->put(std::move(piece));
      };
      // (A copy, where it may have to be submitted again.)
      const auto id = engine_.submit(inputs_[index], std::move(sink));
      const bool is_full = id.status().code() == absl::StatusCode::kResourceExhausted;
      if (is_full && !ids_.empty()) return absl::OkStatus();
      if (!id.ok()) return id.status();
      ids_.push_back(*id);
      inputs_[index] = {};
    }
    return absl::OkStatus();
  }

  Status take(EngineOutput piece) {
    if (!piece.error.ok()) return piece.error;
    if (piece.finish == FinishReason::kNone) return absl::OkStatus();
    const auto is_finite = [](float value) { return std::isfinite(value); };
    if (piece.pooled.empty() || !std::all_of(piece.pooled.begin(), piece.pooled.end(), is_finite))
      return absl::DataLossError("the model computed hidden states that are no numbers");
    vectors_[static_cast<size_t>(piece.choice)] = std::move(piece.pooled);
    cached_count_ += piece.usage.cached_tokens;
    ++finished_count_;
    return absl::OkStatus();
  }

 private:
  Engine& engine_;
  const std::shared_ptr<OutputChannel> channel_;
  std::vector<EngineRequest> inputs_;
  std::vector<std::vector<float>> vectors_;
  std::vector<RequestId> ids_;  // of the inputs submitted so far, in order
  size_t finished_count_ = 0;
  int64_t cached_count_ = 0;
};

// (submit_error() names fields of a generation.)
ApiError refused(const Status& status) {
  ApiError error = submit_error(status);
  if (status.code() == absl::StatusCode::kUnimplemented) {
    error = ApiError::unsupported("", to_std(status.message()));
    error.http_status = 501;
    error.code = "not_supported";
  }
  if (error.param == "prompt") error.param = "input";
  return error;
}

}  // namespace

ApiResult<EmbeddingsRoom::Place> EmbeddingsRoom::take(int64_t count) {
  if (taken_ > 0 && taken_ + count > kNumbersMax)
    return refused(absl::ResourceExhaustedError("too many vectors are being computed; try again"));
  return Place(this, count);
}

Task<ApiResult<EmbeddingsAnswer>> compute_embeddings(Executor executor, Engine& engine,
                                                     const std::string& model, PreparedEmbeddings prepared,
                                                     Deadline deadline) {
  InputsUnderWay inputs(executor, engine, std::move(prepared.inputs));
  while (!inputs.is_done()) {
    if (const Status status = inputs.submit_more(); !status.ok()) co_return refused(status);
    const TimePoint now = std::chrono::steady_clock::now();
    const Deadline until = inputs.is_idle()
                               ? Deadline::after(now, std::min(kFullEngineWait, deadline.remaining(now)))
                               : deadline;
    if (!co_await inputs.channel().wait(until) && deadline.expired(std::chrono::steady_clock::now()))
      co_return deadline_error();
    for (EngineOutput& piece : inputs.channel().take()) {
      if (const Status status = inputs.take(std::move(piece)); !status.ok()) co_return step_error(status);
    }
  }
  EmbeddingsAnswer answer;
  answer.model = model;
  answer.pooling = prepared.pooling;
  answer.base64 = prepared.base64;
  answer.vectors = inputs.take_vectors();
  answer.prompt_tokens = prepared.token_count;
  answer.cached_tokens = inputs.cached_count();
  co_return answer;
}

}  // namespace troupe
