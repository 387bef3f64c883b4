#include "gateway/cluster/key_follower.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/net/timer.h"

namespace troupe {

using etcd::KeyRange;
using etcd::KeyValue;
using etcd::Txn;

namespace {

constexpr Duration kRetry = std::chrono::milliseconds(500);
constexpr size_t kFetchAtOnce = 8;  // values: an answer holds 32 MiB

}  // namespace

KeyFollower::KeyFollower(Executor executor, EtcdClient& etcd, std::string prefix, Listener& listener)
    : executor_(executor), etcd_(etcd), prefix_(std::move(prefix)), listener_(listener) {}

Task<void> KeyFollower::run() {
  Timer timer(executor_);
  while (true) {
    const Status ended = co_await read_and_watch();
    if (ended.ok()) continue;
    listener_.failed(ended);
    timer.expires_after(kRetry);
    co_await timer.async_wait(use_task);
  }
}

// Runs until the watch ends. OK: it fell silent.
Task<Status> KeyFollower::read_and_watch() {
  Txn txn;
  txn.reads = {KeyRange::prefix(prefix_)};
  txn.reads.front().keys_only = true;
  listener_.begin_reading();
  const auto all = co_await etcd_.txn(txn);
  if (!all.ok()) co_return all.status();
  const Status fetched = co_await fetch(listener_.reconcile(*all));
  if (!fetched.ok()) co_return fetched;
  listener_.caught_up(0);
  txn.reads.front().keys_only = false;
  const auto watch = co_await etcd_.watch(txn.reads, all->revision + 1);
  if (!watch.ok()) co_return watch.status();
  listener_.went_well();
  while (true) {
    const auto news = co_await (*watch)->next();
    if (absl::IsAborted(news.status())) co_return absl::OkStatus();
    if (!news.ok()) co_return news.status();
    if (news->canceled) co_return absl::UnavailableError("etcd: the watch was canceled");
    for (const etcd::WatchEvent& event : news->events) listener_.take(event.kv, event.deleted);
    listener_.caught_up(news->events.empty() ? 0 : news->events.back().kv.mod_revision);
  }
}

Task<Status> KeyFollower::fetch(std::vector<std::string> keys) {
  for (size_t begin = 0; begin < keys.size(); begin += kFetchAtOnce) {
    Txn txn;
    for (size_t i = begin; i < std::min(keys.size(), begin + kFetchAtOnce); ++i)
      txn.reads.push_back(KeyRange::key(keys[i]));
    const auto some = co_await etcd_.txn(txn);
    if (!some.ok()) co_return some.status();
    for (const KeyValue& kv : some->found) listener_.take(kv, false);
  }
  co_return absl::OkStatus();
}

}  // namespace troupe
