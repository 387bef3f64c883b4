#include "worker/engine/residency_publisher.h"

#include <chrono>
#include <iterator>
#include <random>
#include <utility>

namespace troupe {

namespace {

constexpr Duration kWorkInterval = std::chrono::milliseconds(100);

std::string random_epoch() {
  std::random_device device;
  const auto word = [&device] { return uint64_t{device()} << 32 | device(); };
  const uint64_t hi = word();
  return Hash128{hi, word()}.hex();
}

}  // namespace

ResidencyPublisher::ResidencyPublisher(std::function<void()> wake)
    : wake_(std::move(wake)), epoch_(random_epoch()) {}

void ResidencyPublisher::publish(Residency& residency, const SetWork& work, bool rests, TimePoint now) {
  const bool publishes_work = rests || now >= work_published_at_ + kWorkInterval;
  if (!publishes_work && !residency.has_changes()) return;
  const MutexLock lock(mutex_);
  if (publishes_work) {
    work_ = work.totals();
    work_published_at_ = now;
  }
  more_ = residency.has_changes() && !changes_.empty();
  if (more_ || !residency.has_changes()) return;
  residency.take_changes(changes_);
  if (!changes_.empty() && listener_) listener_();
}

void ResidencyPublisher::listen(std::function<void()> listener) {
  const MutexLock lock(mutex_);
  listener_ = std::move(listener);
  if (!changes_.empty()) listener_();
}

void ResidencyPublisher::take(std::vector<Resident>& changes) {
  bool more = false;
  {
    const MutexLock lock(mutex_);
    changes.insert(changes.end(), changes_.begin(), changes_.end());
    changes_.clear();
    more = std::exchange(more_, false);
  }
  if (more) wake_();
}

void ResidencyPublisher::describe(LoadReport& report) const {
  report.epoch = epoch_;
  const MutexLock lock(mutex_);
  for (const SetWork::Total& total : work_) {
    report.sets.push_back({total.set, total.work_tokens_total, total.prefix_count});
  }
}

}  // namespace troupe
