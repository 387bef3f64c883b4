#include "gateway/cluster/prober.h"

#include <algorithm>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/system/system_error.hpp>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/api/cache_report.h"
#include "common/json/json.h"
#include "common/net/timer.h"
#include "common/settings/schema.h"
#include "gateway/cluster/foreign_metrics.h"

namespace troupe {

using route::HealthEvent;
using route::NodeState;

namespace {
constexpr std::string_view kFirstReadyPath = "/readyz", kHealthPath = "/health";
constexpr std::string_view kModelsPath = "/v1/models", kMetricsPath = "/metrics";
// They may be large: not with every one of frequent probes.
constexpr Duration kMetricsEvery = std::chrono::milliseconds(500), kMetricsRarely = std::chrono::minutes(5);
constexpr Duration kMetricsRetry = std::chrono::seconds(1);

// Servers whose metrics are known (foreign_metrics.h) name themselves so. Others are not asked: whatever they
// have there costs them time and says nothing here.
bool is_of_known_server(const ModelCard& card) {
  return card.owned_by == "vllm" || card.owned_by == "sglang" || card.owned_by == "llamacpp";
}

// Notice of a worker that is going to drain: {"status": "leaving", "takes_requests_for_ms": …}
std::optional<Duration> notice_in(std::string_view body) {
  const auto value = parse_json(body);
  const bj::object* fields = value.ok() ? value->if_object() : nullptr;
  const bj::value* left = fields == nullptr ? nullptr : fields->if_contains("takes_requests_for_ms");
  if (left == nullptr || !left->is_int64() || left->as_int64() < 1) return std::nullopt;
  constexpr int64_t kNoticeMaxMs = 3'600'000;
  return std::chrono::milliseconds(std::min(left->as_int64(), kNoticeMaxMs));
}

bool not_there(int http_status) {
  return http_status == 404 || http_status == 405 || http_status == 501;
}

bool wants_key(int http_status) {
  return http_status == 401 || http_status == 403;
}

// The line of the log that says why a probe failed.
std::string answered(std::string_view path, int http_status) {
  std::string why = absl::StrCat("GET ", to_absl(path), " was answered ", http_status);
  if (wants_key(http_status)) why += ": its key is api_key_file or api_key_env of its entry in upstreams";
  return why;
}
}  // namespace

struct Prober::Target {
  Target(Executor executor, route::NodeIndex index) : node(index), timer(executor) {}

  route::NodeIndex node;
  Timer timer;
  std::string ready_path{kFirstReadyPath};
  bool has_load = true;  // until a 404
  bool watched = false;
  TimePoint metrics_at{};    // not asked for them before
  bool has_metrics = false;  // its models are of a server known to have them

  UpstreamKind kind = UpstreamKind::kAuto;  // as it was when it began

  void begin_anew(UpstreamKind its) {
    kind = its;
    ready_path = kind == UpstreamKind::kOpenai ? kHealthPath : kFirstReadyPath;
    has_load = kind != UpstreamKind::kOpenai;
    metrics_at = {};
  }

  route::ProbeSchedule schedule;
};

Prober::Prober(Executor executor, Fleet& fleet, const Clock& clock, const ProberOptions& options)
    : executor_(executor), fleet_(fleet), clock_(clock), options_(options) {
  fleet_.on_suspicion = [this](route::NodeIndex node) {
    if (node >= targets_.size()) return;
    targets_[node]->schedule.ask();
    targets_[node]->timer.cancel();
  };
  fleet_.on_joined = [this](route::NodeIndex node) { begin(node); };
}

Prober::~Prober() {
  fleet_.on_suspicion = nullptr;
  fleet_.on_joined = nullptr;
}

void Prober::start(TaskGroup& group) {
  group_ = &group;
  for (route::NodeIndex node = 0; node < fleet_.size(); ++node) begin(node);
}

void Prober::begin(route::NodeIndex node) {
  if (group_ == nullptr) return;
  while (targets_.size() <= node)
    targets_.push_back(std::make_unique<Target>(executor_, static_cast<route::NodeIndex>(targets_.size())));
  Target& target = *targets_[node];
  if (target.watched) {  // it returned before its task had seen it go
    target.schedule.ask();
    target.timer.cancel();
  } else {
    target.watched = group_->spawn(watch(target));
  }
}

Task<void> Prober::watch(Target& target) {
  while (fleet_.member(target.node)) {
    target.schedule.begin(clock_.now());
    {
      const Fleet::Hold hold(fleet_);  // keeps the slot: the reply belongs to this worker
      co_await probe(target);
    }
    target.schedule.end();
    // Cancelled by a suspicion: the next one is due earlier than it was. (Cancellation of this task itself
    // throws from the next co_await.)
    boost::system::error_code suspected;
    do {
      target.timer.expires_at(target.schedule.due(options_));
      co_await target.timer.async_wait(asio::redirect_error(use_task, suspected));
    } while (suspected);
  }
  target.watched = false;
}

Task<void> Prober::probe(Target& target) {
  // A worker that was dead may be another program now, with other endpoints; so may one of another kind.
  const NodeState state = fleet_.state(target.node);
  const UpstreamKind kind = fleet_.upstream(target.node).kind;
  if (state == NodeState::kDead || state == NodeState::kUnknown || kind != target.kind)
    target.begin_anew(kind);
  const bool ready = co_await ask_ready(target);
  if (!ready) co_return;
  const bool models = co_await ask_models(target);
  if (!models) co_return;
  // Models and load first, state last: a worker is never routable without models to serve, and its KV size is
  // known by then.
  if (target.has_load) co_await ask_load(target);
  const bool metrics =
      !fleet_.is_troupe_worker(target.node) && target.has_metrics && clock_.now() >= target.metrics_at;
  if (metrics && state != NodeState::kAlive) co_await ask_metrics(target);
  const bool was_dead = state == NodeState::kDead || state == NodeState::kUnknown;
  if (!was_dead && fleet_.state(target.node) == NodeState::kDead) {
    // It died meanwhile: another program may have answered, on the paths of the one before.
    target.schedule.ask();
    co_return;
  }
  fleet_.on_event(target.node, HealthEvent::kProbeOk);
  // (Of a worker that is routable already they may be late: that is no sign of its health.)
  if (metrics && state == NodeState::kAlive) co_await ask_metrics(target);
}

// False: the worker isn't ready (and has been reported so), or could not be asked.
Task<bool> Prober::ask_ready(Target& target) {
  const bool only_ours = fleet_.upstream(target.node).kind == UpstreamKind::kTroupe;
  while (!target.ready_path.empty()) {
    Reply reply = co_await get(target, target.ready_path);
    if (reply.gateway) {
      fleet_.on_event(target.node, HealthEvent::kProbeFail, reply.why);
      co_return false;
    }
    // Uses the next path while the worker lives. (One that wants a key even for paths it has not is judged
    // by its models.)
    if (!only_ours && (not_there(reply.status) || wants_key(reply.status))) {
      target.ready_path = target.ready_path == kFirstReadyPath ? kHealthPath : "";
      continue;
    }
    if (reply.status == 200) co_return true;
    if (reply.local) co_return false;  // says nothing about the worker
    if (const auto left = notice_in(reply.body); reply.status == 503 && left) {
      fleet_.saw_notice(target.node, *left);
      co_return false;
    }
    const HealthEvent event = reply.status == 503 ? HealthEvent::kProbeNotReady : HealthEvent::kProbeFail;
    if (reply.why.empty()) reply.why = answered(target.ready_path, reply.status);
    fleet_.on_event(target.node, event, reply.why);
    co_return false;
  }
  co_return true;
}

// The models that the worker serves, under clients' names; the error is for the log.
StatusOr<std::vector<ModelCard>> Prober::models_in(const Upstream& upstream, const Reply& reply) {
  if (not_there(reply.status) && !upstream.models.empty()) return upstream.served_unlisted();
  if (!reply.why.empty()) return absl::UnavailableError(reply.why);
  if (reply.status != 200) return absl::UnavailableError(answered(kModelsPath, reply.status));
  auto listed = parse_models(reply.body);
  if (!listed.ok())
    return absl::UnavailableError(absl::StrCat("GET ", to_absl(kModelsPath), ": ", listed.error().message));
  std::vector<ModelCard> served = upstream.served(std::move(listed.value()));
  if (served.empty() && !upstream.models.empty())
    return absl::UnavailableError("it lists none of the models that its entry in upstreams names");
  return served;
}

Task<bool> Prober::ask_models(Target& target) {
  const Reply reply = co_await get(target, kModelsPath);
  auto models = models_in(fleet_.upstream(target.node), reply);
  if (models.ok()) {
    target.has_metrics = std::any_of(models->begin(), models->end(), is_of_known_server);
    fleet_.set_models(target.node, *std::move(models));
    co_return true;
  }
  if (!reply.local) fleet_.on_event(target.node, HealthEvent::kProbeFail, to_std(models.status().message()));
  co_return false;
}

Task<void> Prober::ask_load(Target& target) {
  const Reply reply = co_await get(target, "/v1/load");
  // Only a missing endpoint ends the asking, not one bad answer: a new epoch (an empty cache) is seen only
  // here.
  if (not_there(reply.status)) target.has_load = false;
  if (reply.status != 200) co_return;
  CacheReport cache;
  auto report = parse_load_report(reply.body, cache);
  if (report.ok()) fleet_.set_load(target.node, std::move(report.value()), cache);
}

// Load and KV cache of a worker of another kind. One that reports none is rarely asked again; one that
// could not be asked soon is, for its last report still counts.
Task<void> Prober::ask_metrics(Target& target) {
  const Reply reply = co_await get(target, kMetricsPath);
  const auto report = reply.status == 200 ? report_of_metrics(reply.body) : std::nullopt;
  if (report) fleet_.set_foreign_load(target.node, *report);
  const bool has_none = !report && (reply.status == 200 || not_there(reply.status));
  target.metrics_at = clock_.now() + (report ? kMetricsEvery : has_none ? kMetricsRarely : kMetricsRetry);
}

Task<Prober::Reply> Prober::get(Target& target, std::string_view path) {
  ClientRequest request;
  request.target = path;
  request.headers.emplace_back("accept-encoding", "identity");
  // Anthropic's endpoint refuses requests without it; clients name their own.
  if (fleet_.upstream(target.node).key_header == "x-api-key")
    request.headers.emplace_back("anthropic-version", "2023-06-01");
  const Deadline deadline = Deadline::after(clock_.now(), options_.timeout);
  Reply reply;
  auto answer = co_await fleet_.client(target.node).send(request, deadline);
  if (!answer.ok()) {
    reply.local = answer.status().code() == absl::StatusCode::kResourceExhausted;
    reply.why = to_std(answer.status().message());
    co_return reply;
  }
  auto body = co_await (*answer)->read_all(options_.body_bytes_max);
  if (!body.ok()) {
    reply.why = to_std(body.status().message());
    co_return reply;
  }
  reply.status = (*answer)->status();
  reply.body = *std::move(body);
  reply.gateway = !(*answer)->header("x-route-decision").empty();
  if (reply.gateway) reply.why = "it is a gateway: name its workers, not itself";
  co_return reply;
}

void describe(SettingsSchema& schema, ProberOptions& options) {
  schema.add("probe.interval_ms", &options.interval, "between probes of a worker")
      .range(10, 3.6e6)
      .unit("ms")
      .live();
  schema.add("probe.timeout_ms", &options.timeout, "a probe without an answer by then has failed")
      .range(1, 3.6e6)
      .unit("ms")
      .live();
}

}  // namespace troupe
