#pragma once

// A service that judges texts (access/moderation.h): asked over HTTP with the prompt before it is sent, and
// with windows of the answer before the client has them. One that is down, slow or answers nonsense is what
// the settings say (allow or block), within the time-out, and counted. On the event loop's thread.

#include <array>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "common/core/metrics.h"
#include "common/core/time.h"
#include "common/net/http_client.h"
#include "common/net/task_group.h"
#include "gateway/access/moderation.h"

namespace troupe {

class SettingsSchema;

enum class ModerationForm : uint8_t { kTroupe, kOpenai };
enum class AnswerModeration : uint8_t { kOff, kWindow, kWhole };
enum class PromptModeration : uint8_t { kAll, kLast };
enum class OnFailure : uint8_t { kAllow, kBlock };

struct ModerationOptions {
  std::string url;  // empty: nothing is judged
  ModerationForm form = ModerationForm::kTroupe;
  std::string model;         // for kOpenai; empty: none is named
  std::string api_key_file;  // sent as Authorization: Bearer
  bool before = true;        // the prompt
  AnswerModeration answer = AnswerModeration::kOff;
  PromptModeration prompt = PromptModeration::kAll;
  size_t window_bytes = 200;
  std::chrono::milliseconds timeout{1000};
  OnFailure on_timeout = OnFailure::kAllow, on_error = OnFailure::kAllow;
  ModerationVerdict::Kind flagged = ModerationVerdict::Kind::kBlock;  // of kOpenai
  // Made of the above.
  std::string authorization;
  bool enabled() const { return !url.empty(); }
};
// Describes moderation.*. `options` must outlive the schema.
void describe(SettingsSchema& schema, ModerationOptions& options);
// Checks the URL and reads the key. Errors name the setting.
Status prepare(ModerationOptions& options);

class ModerationHook {
 public:
  // REQUIRES: options.enabled(), and prepare() was OK.
  ModerationHook(const ModerationOptions& options, Executor executor, Metrics& metrics, const Clock& clock);

  struct Subject {
    std::string_view stage;  // prompt, answer
    std::string_view request_id, key, end_user, model;
    int64_t choice = 0;
  };
  // Never fails: what goes wrong is as the settings say.
  Task<ModerationVerdict> ask(Subject subject, std::string text);
  const ModerationOptions& options() const { return options_; }

 private:
  std::string body_of(const Subject& subject, const std::string& text) const;
  ModerationVerdict failed(std::string_view why, OnFailure then);

  const ModerationOptions options_;
  std::string target_;
  const Clock& clock_;
  Metrics& metrics_;
  std::unique_ptr<HttpClient> client_;
  Histogram& took_;
};

}  // namespace troupe
