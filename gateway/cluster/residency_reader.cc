#include "gateway/cluster/residency_reader.h"

#include <algorithm>
#include <utility>

#include "common/api/sse.h"

namespace troupe {

using route::NodeIndex;
using route::NodeState;

namespace {

using Kind = ResidencyEvent::Kind;

constexpr const char* kInStepGauge = "troupe_gateway_residency_in_step";
constexpr auto kJustAfter = std::chrono::milliseconds(1);

bool may_publish(NodeState state) {
  return state == NodeState::kAlive || state == NodeState::kSuspect || state == NodeState::kDraining;
}

bool lacks_feed(int http_status) {
  return http_status == 404 || http_status == 405 || http_status == 501;
}

route::ResidencyEvent::Kind kind_of(Kind kind) {
  switch (kind) {
    case Kind::kSnapshot:
      return route::ResidencyEvent::Kind::kSnapshot;
    case Kind::kAdmitted:
      return route::ResidencyEvent::Kind::kAdmitted;
    case Kind::kEvicted:
      return route::ResidencyEvent::Kind::kEvicted;
  }
  return route::ResidencyEvent::Kind::kSnapshot;
}

// Sets last: the index forgets the last put last, where a worker holds more than it remembers.
std::vector<route::ResidencyItem> items_of(const ResidencyEvent& event) {
  std::vector<route::ResidencyItem> items;
  items.reserve(event.items.size());
  for (const auto wanted : {HolderKind::kSession, HolderKind::kSet}) {
    for (const ResidencyItem& item : event.items) {
      if (item.kind == wanted) items.push_back({item.name, wanted, item.tokens});
    }
  }
  return items;
}

}  // namespace

struct ResidencyReader::Stream {
  std::string worker;  // that had the slot at the last look
  bool open = false;
  bool in_step = false;     // began with a snapshot that was accepted
  bool lacks_feed = false;  // the program that listens there now
  std::shared_ptr<asio::cancellation_signal> cancel;
  TimePoint received_at{};
  TimePoint retry_at{};
  Duration pause{};
  Gauge* in_step_gauge = nullptr;  // null: the worker is removed
  std::string epoch;               // of the worker's cache that `pinned` refers to
  absl::flat_hash_set<Hash128> pinned;
};

// Marks the node out of step when its stream ends, however it ends.
class ResidencyReader::Reading {
 public:
  Reading(ResidencyReader& reader, NodeIndex node) : reader_(reader), node_(node) {
    reader_.fleet_.listens(node_, true);
  }
  ~Reading() {
    Stream& stream = *reader_.streams_[node_];
    reader_.fleet_.listens(node_, false);
    stream.open = stream.in_step = false;
    if (stream.in_step_gauge != nullptr) stream.in_step_gauge->Set(0);
    stream.retry_at = reader_.clock_.now() + stream.pause;
    stream.pause = std::min(2 * stream.pause, reader_.options_.retry_max);
    reader_.router_.residency_lost(node_);
    reader_.look_again_.wake();
  }
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;

 private:
  ResidencyReader& reader_;
  NodeIndex node_;
};

ResidencyReader::ResidencyReader(const ResidencyReaderOptions& options, const Parts& parts)
    : options_(options),
      look_again_(parts.executor),
      fleet_(parts.fleet),
      router_(parts.router),
      metrics_(parts.metrics),
      clock_(parts.clock),
      log_(parts.log),
      events_(parts.metrics.counter("troupe_gateway_residency_events_total",
                                    "Residency events taken from workers.")),
      gaps_(parts.metrics.counter("troupe_gateway_residency_gaps_total",
                                  "Residency streams begun anew because events were missing.")),
      malformed_(parts.metrics.counter("troupe_gateway_residency_malformed_total",
                                       "Residency streams broken off because an event made no sense.")) {}

ResidencyReader::~ResidencyReader() {
  fleet_.on_changed = nullptr;
}

void ResidencyReader::start(TaskGroup& group) {
  if (!options_.enabled) return;
  fleet_.on_changed = [this] { look_again_.wake(); };
  group.spawn(supervise(group));
}

Task<void> ResidencyReader::supervise(TaskGroup& group) {
  while (true) {
    TimePoint idle_until = TimePoint::max();
    for (NodeIndex node = 0; node < fleet_.size(); ++node)
      idle_until = std::min(idle_until, look_after(node, group));
    co_await look_again_.sleep_until(idle_until);
  }
}

TimePoint ResidencyReader::look_after(NodeIndex node, TaskGroup& group) {
  if (node == streams_.size()) streams_.push_back(std::make_unique<Stream>());
  Stream& stream = *streams_[node];
  know_worker(node, stream);
  const TimePoint now = clock_.now();
  const bool up = may_publish(fleet_.state(node));
  if (stream.open) {
    // A node that was forgotten (it seemed dead, or its cache began anew) is out of step with its stream.
    const bool forgotten = stream.in_step && !in_step(node);
    const bool silent = now > stream.received_at + options_.silence_max;
    if (up && !forgotten && !silent) return stream.received_at + options_.silence_max + kJustAfter;
    stream.cancel->emit(asio::cancellation_type::terminal);
    return now + options_.retry_min;  // the stream ends before, and wakes us
  }
  if (!up) {
    stream.lacks_feed = false;
    stream.pause = options_.retry_min;
  }
  if (!up || stream.lacks_feed) return TimePoint::max();
  if (now < stream.retry_at) return stream.retry_at;
  stream.open = true;
  stream.received_at = now;
  stream.cancel = std::make_shared<asio::cancellation_signal>();
  group.spawn(read(node), stream.cancel);
  return now + options_.silence_max + kJustAfter;
}

// Follows a slot to its current worker, which has metrics while it is a member.
void ResidencyReader::know_worker(NodeIndex node, Stream& stream) {
  const bool other = stream.worker != fleet_.id(node);
  if (stream.in_step_gauge != nullptr && (other || !fleet_.member(node)))
    metrics_.remove(kInStepGauge, *std::exchange(stream.in_step_gauge, nullptr));
  if (other && !stream.open) {
    stream = Stream{};
    stream.worker = fleet_.id(node);
    stream.pause = options_.retry_min;
  }
  if (stream.in_step_gauge != nullptr || !fleet_.member(node)) return;
  stream.in_step_gauge = &metrics_.gauge(kInStepGauge, "1 while it is known what the worker holds.",
                                         {{"worker", fleet_.id(node)}});
}

Task<void> ResidencyReader::read(NodeIndex node) {
  const Reading reading(*this, node);
  ClientRequest request;
  request.target = "/v1/residency";
  request.headers.emplace_back("accept", "text/event-stream");
  auto answer = co_await fleet_.client(node).send(request, Deadline::never());
  if (!answer.ok()) co_return;
  const int status = (*answer)->status();
  if (status == 200) {
    co_await read_events(node, **answer);
  } else if (lacks_feed(status)) {
    streams_[node]->lacks_feed = true;
    log_.info("residency_not_told", {{"worker", fleet_.id(node)}, {"status", status}});
  }
}

Task<void> ResidencyReader::read_events(NodeIndex node, ClientAnswer& answer) {
  SseParser parser(kResidencyEventBytesMax);
  std::string bytes;
  bool useful = true;
  while (useful) {
    const auto more = co_await answer.read(bytes);
    if (!more.ok() || !*more) co_return;
    streams_[node]->received_at = clock_.now();
    const Status fed = parser.feed(
        bytes, [&](const SseEvent& event) { useful = useful && apply(node, event.event, event.data); });
    useful = useful && fed.ok();
  }
}

bool ResidencyReader::apply(NodeIndex node, std::string_view name, std::string_view data) {
  Stream& stream = *streams_[node];
  auto parsed = parse_residency_event(name, data);
  if (!parsed.ok()) {
    malformed_.Increment();
    log_.warn("residency_malformed", {{"worker", fleet_.id(node)}, {"why", parsed.error().message}});
    return false;
  }
  const ResidencyEvent& news = parsed.value();
  fleet_.saw_epoch(node, news.epoch);
  const std::vector<route::ResidencyItem> items = items_of(news);
  const route::ResidencyEvent event{kind_of(news.kind), hash_bytes(news.epoch).lo, news.seq, items};
  const route::FeedResult result = router_.residency(node, event);
  events_.Increment();
  if (result == route::FeedResult::kGap) {
    gaps_.Increment();
    stream.pause = options_.retry_min;
    return false;
  }
  if (stream.epoch != news.epoch) stream.pinned.clear();
  stream.epoch = news.epoch;
  note_pins(news, stream.pinned);
  if (news.kind == Kind::kSnapshot) {
    stream.in_step = true;
    stream.pause = options_.retry_min;
    if (stream.in_step_gauge != nullptr) stream.in_step_gauge->Set(1);
    log_.info("residency_known", {{"worker", fleet_.id(node)}, {"seq", news.seq}, {"items", items.size()}});
  }
  return true;
}

void ResidencyReader::note_pins(const ResidencyEvent& event, absl::flat_hash_set<Hash128>& pinned) {
  if (event.kind == Kind::kSnapshot) pinned.clear();
  for (const ResidencyItem& item : event.items) {
    if (item.kind != HolderKind::kSet) continue;
    if (item.pinned && item.tokens > 0) {
      pinned.insert(item.name);
    } else {
      pinned.erase(item.name);
    }
  }
}

std::map<Hash128, std::vector<NodeIndex>> ResidencyReader::pinned() const {
  std::map<Hash128, std::vector<NodeIndex>> by_set;
  for (NodeIndex node = 0; node < streams_.size(); ++node) {
    if (!may_publish(fleet_.state(node))) continue;
    for (const Hash128& set : streams_[node]->pinned) by_set[set].push_back(node);
  }
  return by_set;
}

}  // namespace troupe
