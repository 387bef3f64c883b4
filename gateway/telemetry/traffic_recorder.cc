#include "gateway/telemetry/traffic_recorder.h"

#include <chrono>
#include <csignal>
#include <utility>

#include "gateway/access/secret.h"

namespace troupe {

namespace {

// Polling interval of the writer; requests don't wake it.
constexpr auto kInterval = std::chrono::milliseconds(100);
constexpr Duration kStopWithin = std::chrono::seconds(2);
constexpr size_t kOutcomeBytes = 256;

int64_t unix_us() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
}

int64_t us_of(TimePoint t) {
  return std::chrono::duration_cast<std::chrono::microseconds>(t.time_since_epoch()).count();
}

// Name of a salt: lines of one salt share it, and it does not reveal the salt.
std::string name_of(Hash128 salt) {
  return keyed_hash(salt.hex(), "name").substr(0, 16);
}

}  // namespace

Hash128 record_salt(std::string_view secret) {
  return hash_bytes(keyed_hash(secret, "record of traffic"));
}

StatusOr<std::unique_ptr<TrafficRecorder>> TrafficRecorder::open(const std::string& path, const Parts& parts,
                                                                 Hash128 salt) {
  TROUPE_ASSIGN_OR_RETURN(const int fd, AppendLog::open("record", path));
  return std::unique_ptr<TrafficRecorder>(new TrafficRecorder(fd, path, parts, salt));
}

TrafficRecorder::TrafficRecorder(int fd, const std::string& path, const Parts& parts, Hash128 salt)
    : clock_(parts.clock),
      salt_(salt),
      unix_us_at_zero_(unix_us() - us_of(parts.clock.now())),
      dropped_full_(parts.metrics.counter("troupe_gateway_record_dropped_total",
                                          "Requests that are not in --record's file, by why.",
                                          {{"reason", "queue_full"}})),
      file_(fd, path,
            {"record", parts.log,
             parts.metrics.counter("troupe_gateway_record_lines_total", "Lines written to --record's file."),
             parts.metrics.counter("troupe_gateway_record_dropped_total",
                                   "Requests that are not in --record's file, by why.",
                                   {{"reason", "write_failed"}}),
             [this] { return may_go_on(); }}),
      writer_([this] { run(); }) {}

TrafficRecorder::~TrafficRecorder() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    stop_by_ = clock_.now() + kStopWithin;
  }
  wake_.notify_one();
  writer_.join();
}

uint64_t TrafficRecorder::arrived(TrafficArrival arrival, TimePoint at) {
  arrival.unix_us = unix_us_at_zero_ + us_of(at);
  arrival.number = last_number_ + 1;
  const size_t bytes = sizeof(Event) + arrival.marks.heap_bytes();
  if (!push(std::move(arrival), bytes)) {
    dropped_full_.Increment();
    return 0;
  }
  return ++last_number_;
}

void TrafficRecorder::ended(uint64_t number, TrafficOutcome outcome) {
  // If the queue has no room for it, the line says that the request has not ended.
  if (number != 0) push(End{number, std::move(outcome)}, kOutcomeBytes);
}

bool TrafficRecorder::push(Event event, size_t bytes) {
  const MutexLock lock(mutex_);
  if (queued_bytes_ + bytes > kQueueBytesMax) return false;
  queued_bytes_ += bytes;
  queue_.push_back(std::move(event));
  return true;
}

// False: time to stop; `events` may hold the last ones then.
bool TrafficRecorder::wait(std::vector<Event>& events) {
  const MutexLock lock(mutex_);
  while (!stopping_ && wake_.wait_for(mutex_, kInterval)) {
  }
  events.swap(queue_);
  queued_bytes_ = 0;
  return !stopping_;
}

void TrafficRecorder::run() {
  // A pipe without a reader is a failed write, it does not end the gateway.
  sigset_t pipe_signal;
  sigemptyset(&pipe_signal);
  sigaddset(&pipe_signal, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe_signal, nullptr);
  TraceWriter lines(TraceWriter::kHeldBytesMax, name_of(salt_));
  std::vector<Event> events;
  std::string text;
  for (bool more = true; more;) {
    more = wait(events);
    for (Event& event : events) {
      if (auto* arrival = std::get_if<TrafficArrival>(&event)) {
        lines.arrived(std::move(*arrival));
      } else {
        End& end = std::get<End>(event);
        lines.ended(end.number, std::move(end.outcome));
      }
      lines.take(text);
    }
    events.clear();
    if (!more) lines.take_all(text);
    file_.write(text);
    text.clear();
  }
}

bool TrafficRecorder::may_go_on() {
  const MutexLock lock(mutex_);
  return !stopping_ || clock_.now() < stop_by_;
}

}  // namespace troupe
