#include "gateway/proxy/moderation_hook.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/regular_file.h"
#include "common/json/json.h"
#include "common/settings/schema.h"
#include "gateway/upstream/ask_once.h"

namespace troupe {

namespace {

constexpr EnumName<ModerationForm> kForms[] = {{"troupe", ModerationForm::kTroupe},
                                               {"openai_moderation", ModerationForm::kOpenai}};
constexpr EnumName<AnswerModeration> kAnswers[] = {{"off", AnswerModeration::kOff},
                                                   {"window", AnswerModeration::kWindow},
                                                   {"whole", AnswerModeration::kWhole}};
constexpr EnumName<PromptModeration> kPrompts[] = {{"all", PromptModeration::kAll},
                                                   {"last", PromptModeration::kLast}};
constexpr EnumName<OnFailure> kOnFailure[] = {{"allow", OnFailure::kAllow}, {"block", OnFailure::kBlock}};
constexpr EnumName<ModerationVerdict::Kind> kFlagged[] = {{"block", ModerationVerdict::Kind::kBlock},
                                                          {"annotate", ModerationVerdict::Kind::kAnnotate}};
constexpr size_t kAnswerBytesMax = 1u << 20;
constexpr size_t kKeyBytesMax = 8192;

// Splits a URL into what a connection is made to, and the path that is asked.
StatusOr<std::pair<Endpoint, std::string>> parse_url(const std::string& url) {
  const size_t scheme_end = url.find("://");
  const size_t host = scheme_end == std::string::npos ? 0 : scheme_end + 3;
  const size_t path = std::min(url.find('/', host), url.size());
  TROUPE_ASSIGN_OR_RETURN(Endpoint endpoint, Endpoint::parse(url.substr(0, path)));
  return std::pair(std::move(endpoint), path == url.size() ? std::string("/") : url.substr(path));
}

}  // namespace

void describe(SettingsSchema& schema, ModerationOptions& options) {
  schema.add("moderation.url", &options.url,
             "service that judges prompts and answers, such as http://127.0.0.1:8080/judge; empty: none");
  schema.add_enum("moderation.kind", &options.form, kForms,
                  "what it speaks: verdicts of its own, or the form of POST /v1/moderations");
  schema.add("moderation.model", &options.model, "named in requests of kind openai_moderation; empty: none");
  schema.add("moderation.api_key_file", &options.api_key_file, "file of the key that it wants; empty: none");
  schema.add("moderation.before", &options.before, "judge the prompt, before a worker gets it");
  schema.add_enum(
      "moderation.prompt", &options.prompt, kPrompts,
      "what of it: all that the client sent, or what came after the last answer, which a client can claim");
  schema.add_enum("moderation.answer", &options.answer, kAnswers,
                  "judge the answer: by windows of sentences, each held until it has its verdict, or whole");
  schema
      .add("moderation.window_bytes", &options.window_bytes,
           "a window ends with the first sentence that ends after so many bytes, at four times as many at "
           "last")
      .range(1, 1e6)
      .unit("bytes");
  schema.add("moderation.timeout_ms", &options.timeout, "longest that one verdict is waited for")
      .range(1, 600'000)
      .unit("ms");
  schema.add_enum("moderation.on_timeout", &options.on_timeout, kOnFailure, "what then happens to the text");
  schema.add_enum("moderation.on_error", &options.on_error, kOnFailure,
                  "what happens to it where the service is down, answers an error or nonsense");
  schema.add_enum("moderation.flagged", &options.flagged, kFlagged,
                  "what a text is that an openai_moderation service flags");
}

Status prepare(ModerationOptions& options) {
  if (!options.enabled()) return absl::OkStatus();
  if (const auto url = parse_url(options.url); !url.ok()) return annotate(url.status(), "moderation.url");
  if (options.api_key_file.empty()) return absl::OkStatus();
  auto key = read_regular_file(options.api_key_file, kKeyBytesMax);
  if (!key.ok()) return annotate(key.status(), "moderation.api_key_file");
  while (key->ends_with('\n') || key->ends_with('\r')) key->pop_back();
  options.authorization = "Bearer " + *key;
  return absl::OkStatus();
}

ModerationHook::ModerationHook(const ModerationOptions& options, Executor executor, Metrics& metrics,
                               const Clock& clock)
    : options_(options),
      clock_(clock),
      metrics_(metrics),
      took_(metrics.histogram("troupe_gateway_moderation_seconds",
                              "Time until the moderation service's verdict.", kTtftBuckets)) {
  auto url = parse_url(options.url);
  HttpClientOptions client;
  client.connect_timeout = std::min(client.connect_timeout, options.timeout);
  auto tls = TlsContext::for_client(TlsFiles(), "moderation");  // the system's authorities
  if (tls.ok()) client.tls = std::make_shared<TlsSource>(TlsSource{*std::move(tls)});
  target_ = url->second;
  client_ = std::make_unique<HttpClient>(executor, url->first, client);
}

std::string ModerationHook::body_of(const Subject& subject, const std::string& text) const {
  bj::object body;
  if (options_.form == ModerationForm::kOpenai) {
    body["input"] = text;
    if (!options_.model.empty()) body["model"] = options_.model;
    return to_json(body);
  }
  body["stage"] = bj::string(subject.stage);
  body["request_id"] = bj::string(subject.request_id);
  body["key"] = bj::string(subject.key);
  body["end_user"] = bj::string(subject.end_user);
  body["model"] = bj::string(subject.model);
  body["choice"] = subject.choice;
  body["text"] = text;
  return to_json(body);
}

ModerationVerdict ModerationHook::failed(std::string_view why, OnFailure then) {
  metrics_
      .counter("troupe_gateway_moderation_failures_total",
               "Texts without a verdict, by why: the service was slow, down, or answered nonsense.",
               {{"why", std::string(why)}})
      .Increment();
  ModerationVerdict verdict;
  if (then == OnFailure::kBlock) verdict.kind = ModerationVerdict::Kind::kBlock;
  return verdict;
}

Task<ModerationVerdict> ModerationHook::ask(Subject subject, std::string text) {
  const std::string body = body_of(subject, text);
  ClientRequest request;
  request.method = "POST";
  request.target = target_;
  request.body = body;
  request.headers.emplace_back("content-type", "application/json");
  request.headers.emplace_back("x-request-id", subject.request_id);
  if (!options_.authorization.empty()) request.headers.emplace_back("authorization", options_.authorization);
  const TimePoint asked = clock_.now();
  const Deadline deadline = Deadline::after(asked, options_.timeout);
  const ForwardResult result = co_await ask_once(*client_, request, deadline, kAnswerBytesMax);
  took_.Observe(std::chrono::duration<double>(clock_.now() - asked).count());
  if (result.end != ForwardResult::End::kAnswered) {
    const bool late = deadline.expired(clock_.now());
    const std::string_view why = late ? "timeout" : result.status != 0 ? "status" : "down";
    co_return failed(why, late ? options_.on_timeout : options_.on_error);
  }
  const auto verdict = options_.form == ModerationForm::kOpenai
                           ? parse_openai_moderation(result.held_body, options_.flagged)
                           : parse_verdict(result.held_body);
  if (!verdict) co_return failed("malformed", options_.on_error);
  metrics_
      .counter("troupe_gateway_moderation_verdicts_total", "Verdicts of the moderation service, by what of.",
               {{"stage", std::string(subject.stage)}, {"verdict", std::string(verdict_name(verdict->kind))}})
      .Increment();
  co_return *verdict;
}

}  // namespace troupe
