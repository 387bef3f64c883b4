// What is computed ahead of use, and what stays of it. A request in the background is younger than every
// other, whenever it came: so it is admitted last, gets a few of the prefill tokens that the others leave,
// and is preempted first. And it makes way where another finds no place beside it: what it has computed so
// far stays cached, so little is lost.
//
// Pins take memory from everybody, but never so much that a request that was accepted could not run: a
// request is accepted if it fits beside all that is pinned or may be when those that are here end, and a pin
// if all requests that are here fit beside it. What a request shares with a pin it has for nothing; when
// that pin goes, its room is free for just so much. So there is always somebody who can go on: the oldest
// that runs, when all younger ones have given way.

#include <algorithm>
#include <string>

#include "worker/schedule/scheduler_impl.h"

namespace troupe {

namespace {

// What the background may have of a step's tokens. Beside others it makes a step that decodes half as long
// again (on the GPUs and CPUs of configs/sim; all that the others leave made theirs five times as long, and
// whoever came meanwhile went elsewhere, where its conversation was not cached); and where nobody is, whoever
// comes waits for what is under way.
constexpr int32_t kShareBeside = 32;
constexpr int32_t kShareAlone = 4;

}  // namespace

// At least one token a step for each that runs: decodes can't starve a prefill.
size_t Scheduler::Impl::running_limit() const {
  return static_cast<size_t>(std::min(config.max_num_seqs, config.max_num_batched_tokens));
}

// They are the last in both queues.
void Scheduler::Impl::count_background() {
  stats.background_running = stats.background_waiting = 0;
  stats.background_pending_tokens = 0;
  const auto count = [this](const std::vector<Request*>& queue, int32_t& in_background) {
    for (auto it = queue.rbegin(); it != queue.rend() && (*it)->in_background(); ++it) {
      in_background += 1;
      stats.background_pending_tokens += (*it)->pending_tokens;
    }
  };
  if (background_count == 0) return;
  count(running, stats.background_running);
  count(waiting, stats.background_waiting);
}

// Those who run, behind all others and before those of their kind who wait.
void Scheduler::Impl::serve_background() {
  if (background_served) return;
  background_served = true;
  const auto first =
      std::find_if(prefilling.begin(), prefilling.end(), [](const Request* r) { return r->in_background(); });
  const int32_t share = config.max_num_batched_tokens / (batch.empty() ? kShareAlone : kShareBeside);
  budget = std::min(budget, held + std::max(share, config.block_size));
  for (auto it = first; it != prefilling.end() && budget > 0; ++it) give_chunk(**it);
}

// Where prompts and decodes take turns, prompts of the background take no turn from decodes.
bool Scheduler::Impl::has_place_for_background() const {
  return config.batching == Batching::kMerged || !batch.empty() || prefilling.size() == running.size();
}

// Those in the background who hold what another waits for leave it at the next step: in this one they may
// have a part. A batch gives way when nobody else is left in it.
void Scheduler::Impl::claim_room() {
  makes_way = false;
  if (waiting.empty() || waiting.front()->in_background()) return;
  if (running.empty() || !running.back()->in_background()) return;
  const bool full = running.size() >= running_limit() || tables.available_count() == 0;
  const bool in_batches = config.batching == Batching::kStatic;
  makes_way = in_batches ? running.front()->in_background() : no_room || full;
}

void Scheduler::Impl::make_way() {
  while (!running.empty() && running.back()->in_background()) preempt(*running.back());
  makes_way = false;
}

// Of prompt and answer together, beside so many blocks that are kept. The last token is never stored.
int64_t Scheduler::Impl::most_tokens(const Request& request, int32_t kept_blocks) const {
  const int64_t blocks = int64_t{config.block_count} - kept_blocks + tables.pinned_count(request);
  return blocks * config.block_size + 1;
}

// For a request that is in no step yet: whether it fits beside what is kept, and its own pin beside all.
Status Scheduler::Impl::check_room(Request& request) {
  const int64_t most = most_tokens(request, kept_count());
  if (int64_t{request.prompt_count} + request.max_new_count > most) {
    if (!request.cut_to_fit || most <= request.known_count) {
      return invalid_argument("the prompt has " + std::to_string(request.prompt_count) + " tokens; with " +
                              std::to_string(request.max_new_count) +
                              " to generate they do not fit the KV cache beside the prefixes pinned in it: " +
                              std::to_string(std::max<int64_t>(most - 1, 0)) + " of " +
                              std::to_string(int64_t{config.block_count} * config.block_size) + " are left");
    }
    request.max_new_count = static_cast<int32_t>(most - request.prompt_count);
  }
  if (request.pin.is_zero()) return absl::OkStatus();
  request.pin_blocks = tables.blocks_for(request.prompt_count);
  reserved_count += request.pin_blocks;
  TROUPE_RETURN_IF_ERROR(check_others(request, /*cut=*/false));
  return check_others(request, /*cut=*/true);
}

// Whether all who are here fit beside the newcomer's pin, which is reserved; `cut`: and are told if they may
// say less for it.
Status Scheduler::Impl::check_others(const Request& newcomer, bool cut) {
  for (auto& [id, other] : requests) {
    Request& r = *other;
    if (&r == &newcomer) continue;
    const int64_t most = most_tokens(r, kept_count() - r.pin_blocks);
    const int64_t surplus = int64_t{r.prompt_count} + r.max_new_count - most;
    if (surplus <= 0) continue;
    if (!r.cut_to_fit || r.max_new_count - surplus <= emitted_by(r)) {
      return absl::ResourceExhaustedError(
          to_absl("a request of " + std::to_string(int64_t{r.prompt_count} + r.max_new_count) +
                  " tokens is here, which would not fit beside the pin; try again when it has ended"));
    }
    if (!cut) continue;
    r.max_new_count -= static_cast<int32_t>(surplus);
    if (r.phase != RequestPhase::kWaiting) running_new_count -= surplus;
  }
  return absl::OkStatus();
}

}  // namespace troupe
