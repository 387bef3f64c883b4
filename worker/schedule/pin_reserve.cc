#include "worker/schedule/pin_reserve.h"

#include <algorithm>
#include <string>

namespace troupe {

Status PinReserve::admit(ScheduledRequest& request) {
  if (kept_count() == 0 && request.spec.pin.is_zero()) return absl::OkStatus();
  TROUPE_RETURN_IF_ERROR(fit(request));
  if (request.spec.pin.is_zero()) return absl::OkStatus();
  request.pin_blocks = tables_->blocks_for(request.prompt_count);
  reserved_count_ += request.pin_blocks;
  // All or none: no answer is cut for a pin that is refused.
  TROUPE_RETURN_IF_ERROR(fit_others(request, /*cut=*/false));
  return fit_others(request, /*cut=*/true);
}

// The most tokens that prompt and answer may have together beside so many kept blocks. The last token is
// never stored.
int64_t PinReserve::most_tokens(const ScheduledRequest& request, int32_t kept_blocks) const {
  const int64_t blocks = int64_t{config_->block_count} - kept_blocks + tables_->pinned_count(request);
  return blocks * config_->block_size + 1;
}

// By how many tokens an answer may be too long for it beside so many kept blocks. A companion's are its
// request's, which is taken to share no block of it with a pin.
int64_t PinReserve::surplus_of(const ScheduledRequest& request, int32_t kept_blocks) const {
  if (request.is_companion) return 0;
  if (request.partner == nullptr)
    return int64_t{request.prompt_count} + request.max_new_count - most_tokens(request, kept_blocks);
  const int64_t blocks = int64_t{config_->block_count} - kept_blocks + tables_->pinned_count(request);
  return request.max_new_count -
         most_new_beside_companion(*config_, blocks, request.prompt_count, request.partner->prompt_count);
}

void PinReserve::cut(ScheduledRequest& request, int64_t token_count) {
  queues_->cut(request, static_cast<int32_t>(token_count));
  if (request.partner != nullptr) queues_->cut(*request.partner, static_cast<int32_t>(token_count));
}

Status PinReserve::fit(ScheduledRequest& request) {
  const int64_t most = most_tokens(request, kept_count());
  const int64_t surplus = surplus_of(request, kept_count());
  if (surplus <= 0) return absl::OkStatus();
  if (!request.spec.cut_to_fit || request.max_new_count - surplus <= request.emitted_count()) {
    return invalid_argument("the prompt has " + std::to_string(request.prompt_count) + " tokens; with " +
                            std::to_string(request.max_new_count) + " to generate " +
                            (request.partner == nullptr ? "they" : "and a negative prompt they") +
                            " do not fit the KV cache beside the prefixes pinned in it: " +
                            std::to_string(std::max<int64_t>(most - 1, 0)) + " of " +
                            std::to_string(int64_t{config_->block_count} * config_->block_size) +
                            " are left");
  }
  cut(request, surplus);
  return absl::OkStatus();
}

// Whether all other requests fit beside the newcomer's pin, which is reserved; with `cut` their answers are
// cut to what fits.
Status PinReserve::fit_others(const ScheduledRequest& newcomer, bool cut) {
  for (const auto& [id, other] : queues_->all()) {
    ScheduledRequest& r = *other;
    if (&r == &newcomer) continue;
    const int64_t surplus = surplus_of(r, kept_count() - r.pin_blocks);
    if (surplus <= 0) continue;
    if (!r.spec.cut_to_fit || r.max_new_count - surplus <= r.emitted_count()) {
      return absl::ResourceExhaustedError(
          to_absl("a request of " + std::to_string(int64_t{r.prompt_count} + r.max_new_count) +
                  " tokens is here, which would not fit beside the pin; try again when it has ended"));
    }
    if (cut) this->cut(r, surplus);
  }
  return absl::OkStatus();
}

}  // namespace troupe
