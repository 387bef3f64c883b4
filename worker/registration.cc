#include "worker/registration.h"

#include <optional>
#include <utility>

#include "common/net/timer.h"
#include "worker/config.h"

namespace troupe {
namespace {

constexpr Duration kSoon = std::chrono::milliseconds(500);

etcd::Put place_of(const std::string& prefix, const WorkerRecord& record) {
  etcd::Put place;
  place.key = StateKeys(prefix).workers + Endpoint::parse(record.url)->authority();
  place.value = worker_record_json(record);
  return place;
}

}  // namespace

Registration::Registration(const Options& options, const WorkerRecord& record, const Parts& parts)
    : executor_(parts.executor),
      log_(parts.log),
      etcd_(parts.executor, options.etcd, parts.clock),
      lease_(etcd_, options.ttl, parts.clock),
      place_(place_of(options.prefix, record)),
      registered_(parts.metrics.gauge("troupe_worker_registered", "1 while etcd is told that it is there.")),
      tasks_(parts.executor) {
  tasks_.on_error = [this](std::string_view what) { log_.error("registration_failed", {{"what", what}}); };
}

Registration::~Registration() = default;

void Registration::start() {
  tasks_.spawn(keep());
}

Task<void> Registration::keep() {
  Timer timer(executor_);
  std::optional<bool> logged;
  while (true) {
    const Status kept = co_await keep_once();
    registered_.Set(kept.ok() ? 1 : 0);
    if (logged != kept.ok()) {
      log_.write(kept.ok() ? LogLevel::kInfo : LogLevel::kWarn, kept.ok() ? "registered" : "not_registered",
                 {{"key", place_.key}, {"why", to_std(kept.message())}});
      logged = kept.ok();
    }
    timer.expires_after(kept.ok() ? Duration(lease_.ttl()) / 3 : kSoon);
    co_await timer.async_wait(use_task);
  }
}

Task<Status> Registration::keep_once() {
  const Status kept = co_await lease_.keep();
  if (!kept.ok() || lease_.id() == place_.lease) co_return kept;
  place_.lease = lease_.id();
  const Status put = co_await etcd_.put(place_);
  if (!put.ok()) place_.lease = 0;
  co_return put;
}

Task<void> Registration::end() {
  tasks_.close();
  tasks_.cancel();
  co_await tasks_.join();
  const Status ended = co_await lease_.end();
  etcd_.close_idle();  // the io_context ends when nothing waits any more
  registered_.Set(0);
  log_.info("registration_ended", {{"key", place_.key}, {"told", ended.ok()}});
}

std::unique_ptr<Registration> make_registration(const WorkerSettings& settings, uint16_t port,
                                                const std::string& epoch, const Registration::Parts& parts) {
  if (settings.etcd_endpoints.empty()) return nullptr;
  Registration::Options options = settings.registration;
  options.etcd = *EtcdOptions::of(settings.etcd_endpoints, options.ttl);
  options.etcd.tls = parts.etcd_tls;
  WorkerRecord record;
  record.url = settings.advertise_url;
  if (record.url.empty()) {
    Endpoint here;
    here.host = settings.server.http.host;
    here.port = port;
    here.tls = !settings.tls.certificate.empty();
    record.url = here.url();
  }
  record.model = settings.served_model_name;
  record.epoch = epoch;
  return std::make_unique<Registration>(options, record, parts);
}

}  // namespace troupe
