#pragma once

// OpenAI's request and answer types ↔ JSON, for both programs. Each hop parses once, strictly: the gateway
// parses to route and to refuse early, and forwards the client's bytes unchanged; the worker parses the same
// bytes with the same code.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "common/api/error.h"
#include "common/api/sampler_fields.h"
#include "common/api/tool_call.h"
#include "common/api/truncation.h"
#include "common/core/block_hash.h"
#include "common/json/text.h"

namespace troupe {

enum class Role : uint8_t { kSystem, kDeveloper, kUser, kAssistant, kTool };
std::string_view role_name(Role role);

struct ChatMessage {
  Role role = Role::kUser;
  std::string content;  // text parts joined by line breaks, as vLLM; empty if null or absent (tool_calls)
  // The message's other fields (name, tool_calls, tool_call_id, reasoning_content, …) as the compact text of
  // a JSON object, in their order in the body and without nulls; or empty. Only the chat template reads them;
  // the prefix key hashes them.
  std::string extra_json;
  bool prefix = false;               // the answer goes on with it: only the last, an assistant's
  std::vector<size_t> part_bytes{};  // of content in several parts: the size of each
};

// Limit of `n`: enough for every practical use; OpenAI's 128 would let one request fill a worker.
inline constexpr int32_t kChoicesMax = 16;

// A streamed answer to resume: the ids and seed that its chunks
// carried (Choice::ids, seed), and its identity.
struct ResumedStream {
  std::vector<int32_t> ids;
  uint64_t seed = 0;
  std::string id;                    // empty: a new one
  std::optional<int64_t> created_s;  // none: now
};

// How the text of an answer has to look: `response_format`, and the other names for it.
struct AnswerFormat {
  enum class Kind : uint8_t { kJsonObject, kJsonSchema, kRegex, kChoice, kGbnf, kStructuralTag };
  Kind kind = Kind::kJsonObject;
  std::string field;                 // the path of `text` in the body, for errors
  std::string text;                  // a schema or structural tag as JSON, an expression, a grammar
  std::vector<std::string> choices;  // kChoice
  bool any_whitespace = true;        // of JSON: as it permits; else a space behind each comma and colon

  bool operator==(const AnswerFormat&) const = default;
};

enum class ToolChoice : uint8_t { kAuto, kNone, kRequired, kNamed };

// Limit of a list of prompts: what evaluation harnesses and load generators send at once, and more.
inline constexpr size_t kPromptsMax = 256;

// One parsed POST /v1/chat/completions or /v1/completions. A field is optional if the model's
// generation_config.json may set its default.
struct GenerateRequest {
  enum class Kind : uint8_t { kChat, kCompletion };
  Kind kind = Kind::kChat;
  std::string model;
  std::vector<ChatMessage> messages;                               // chat; never empty
  using Prompt = std::variant<std::string, std::vector<int32_t>>;  // a text, or token ids
  Prompt prompt;                                                   // completion; never empty
  std::vector<Prompt> more_prompts;  // that a list has beside it. Each has n choices, in the list's order
  // A prompt's oldest tokens are left out until it and max_tokens come to so many, and fit the model; but for
  // its first bytes, which stay.
  std::optional<int64_t> context_tokens_max;
  int64_t kept_prompt_bytes = 0;

  std::optional<double> temperature;  // [0, 2]; 0 is greedy
  std::optional<double> top_p;        // (0, 1]; what a client sends as 0 is next to it
  std::optional<int64_t> top_k;       // >= 1; -1 or 0: off
  std::optional<double> min_p;        // [0, 1]
  std::optional<uint64_t> seed;       // -1 is none; other negative ones are taken modulo 2^64
  std::optional<int64_t> max_tokens;  // >= 1, or 0 with echo; max_completion_tokens wins over max_tokens
  std::vector<std::string> stop;      // at most 16 KB, none empty
  std::vector<int32_t> stop_token_ids;
  // The answer has none of these, in whatever case: at most 16 KB, none empty.
  std::vector<std::string> banned_strings;
  bool ignore_eos = false;
  std::optional<double> repetition_penalty;           // [0.01, 10]; 1: off. Over prompt and answer
  double presence_penalty = 0;                        // [-2, 2]. Over the answer
  double frequency_penalty = 0;                       // [-2, 2]. Over the answer
  std::vector<std::pair<int32_t, float>> logit_bias;  // by id, none twice; [-100, 100] or -infinity
  std::optional<SamplerFields> samplers;              // none of them is there
  // If set, log-probabilities are reported, with this many alternatives a token, [0, 20]: chat's
  // top_logprobs, completions' logprobs.
  std::optional<int32_t> logprobs;
  int32_t n = 1;        // choices, [1, kChoicesMax]
  int32_t best_of = 1;  // completions: that many are made, the n best returned; at most n: none besides
  bool echo = false;    // completions: the prompt comes before the answer
  bool stream = false;
  bool include_usage = false;
  bool continuous_usage = false;      // in every chunk; then include_usage
  bool add_generation_prompt = true;  // of a chat: the template opens the assistant's turn
  // A chat's answer goes on with the last message, an assistant's that is not empty. Also asked for by
  // `prefix: true` in it, and by `assistant_prefill`, which becomes it. Then add_generation_prompt is false.
  bool continue_final_message = false;
  std::optional<ResumedStream>
      resume;  // then stream, one prompt, n is 1, and seed, if present, equals resume's

  std::string user;
  std::string metadata_user;      // metadata.user_id
  std::string safety_identifier;  // names the end user, as `user` does
  std::string prompt_cache_key;
  std::string cache_salt;
  int32_t priority = 0;                          // vLLM's: lower is earlier
  std::string tools_json;                        // JSON array's text, or empty
  std::optional<AnswerFormat> format;            // none: any text
  ToolChoice tool_choice = ToolChoice::kAuto;    // kNone: what looks like a call is text
  std::string called_tool;                       // of kNamed
  bool parallel_tool_calls = true;               // false: of several calls the first counts
  std::string reasoning_effort;                  // for the template, or empty
  std::optional<int32_t> thinking_token_budget;  // the most tokens of the answer's thoughts; none: any number
  bool include_reasoning = true;                 // false: the answer is without its thoughts
  std::string documents_json;                    // JSON array's text (maybe "[]"), or empty
  std::string chat_template_kwargs_json;         // JSON object's text, or empty
  std::optional<Truncation> truncation;          // of a chat; none: a prompt that does not fit is refused
  std::string persona_json;                      // a gateway's persona: a JSON string or object; or empty

  // Choices that are made of each prompt, and those of all.
  int32_t candidate_count() const { return std::max(n, best_of); }
  int32_t choice_count() const { return candidate_count() * static_cast<int32_t>(1 + more_prompts.size()); }
};

struct ApiLimits {
  size_t body_bytes_max = 16u << 20;
  size_t messages_max = 4096;
  // The workers are of another kind, and refuse what they do not understand themselves: content parts that
  // are no text, fields and values that ours have no use for. They count as text, or as left out.
  bool for_others = false;
  // A chat may name a persona, which a gateway puts around its messages; else `persona` is refused.
  bool takes_personas = false;
};

class StrictJson;

// Parses bodies one after another into buffers that it keeps, which makes a parse cheap: keep one a thread.
// Not thread-safe; results own their memory.
class ApiParser {
 public:
  explicit ApiParser(const ApiLimits& limits = {});
  ~ApiParser();
  ApiParser(ApiParser&&) noexcept;
  ApiParser& operator=(ApiParser&&) noexcept;

  // Errors are 400, naming `param` (e.g. "messages[2].content") and the right value, or 413 over
  // body_bytes_max. Unknown fields are ignored, null means absent.
  ApiResult<GenerateRequest> parse_chat(JsonText body);
  ApiResult<GenerateRequest> parse_completion(JsonText body);

 private:
  ApiResult<GenerateRequest> parse(GenerateRequest::Kind kind, JsonText body);

  ApiLimits limits_;
  std::unique_ptr<StrictJson> json_;
};

// The same with a new parser each call; for tests and rare bodies.
ApiResult<GenerateRequest> parse_chat_request(std::string_view body, const ApiLimits& limits = {});
ApiResult<GenerateRequest> parse_completion_request(std::string_view body, const ApiLimits& limits = {});

// Where a chat's prompt left the prefix cache: the first token that was not read from it, and the message it
// is part of, by its place in the body.
struct CacheBreak {
  int32_t message = 0;
  int64_t token = 0;
};

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t cached_tokens = 0;  // tokens of the prompt read from the prefix cache
  // Part of the completion's, where the model's thoughts are split off.
  std::optional<int64_t> reasoning_tokens = std::nullopt;
  std::optional<CacheBreak> cache_break = std::nullopt;  // none: not a chat
  int32_t truncated_messages = 0;                        // left out of the prompt (Truncation)
};

// The stop string or the id of the stop token that ended an answer, where one did.
using StopReason = std::variant<std::monostate, std::string, int32_t>;

enum class FinishReason : uint8_t { kNone, kStop, kLength };
std::string_view finish_reason_name(FinishReason reason);  // "stop", "length"; kNone: ""

// Identity of one answer: `id` is "chatcmpl-…" or "cmpl-…", created in Unix seconds.
struct AnswerHeader {
  GenerateRequest::Kind kind = GenerateRequest::Kind::kChat;
  std::string id;
  std::string model;
  int64_t created_s = 0;
};

// A token with its log-probability: log softmax of the model's own logits, before bias, penalties,
// temperature and cuts, which is OpenAI's and vLLM's default.
struct TokenLogprob {
  struct Alternative {
    std::string bytes;
    float logprob = 0;
  };
  std::string bytes;             // the token's bytes; may be part of a character
  std::optional<float> logprob;  // none for the first token of a prompt: nothing comes before it
  std::vector<Alternative> top;  // most probable first
  int64_t text_offset = 0;       // start of its text in the choice's, in characters
};

// One of the answers to a prompt, or a streamed piece of one. REQUIRES: texts are valid UTF-8.
struct Choice {
  int32_t index = 0;
  std::string_view text;
  std::string_view reasoning = {};
  std::span<const ToolCall> calls = {};
  bool has_calls = false;  // the whole choice has: then it ends for them, unless it was cut
  FinishReason finish = FinishReason::kNone;
  const StopReason* stop = nullptr;                     // with kStop; null: nothing
  const std::vector<TokenLogprob>* logprobs = nullptr;  // null: not reported
  // Lets another worker resume the stream: the ids of this piece
  // (null: not sent) and the seed they are drawn with.
  const std::vector<int32_t>* ids = nullptr;
  std::optional<uint64_t> seed = std::nullopt;
  const Usage* usage = nullptr;  // the whole answer's, sent with the ids of its last piece; null: not sent
};

// Serialises a whole answer.
std::string answer_json(const AnswerHeader& header, std::span<const Choice> choices, const Usage& usage);
enum class ChunkUsage : uint8_t { kNone, kNull, kRunning };
// Serialises one streamed chunk (without SSE framing). `first`: the first of its choice; in chat it carries
// the role. Its usage is none, null (the last chunk has it), or what it has come to. With ids the chunk
// ends in `,"troupe":{"ids":[…]}}`; after the ids may come `,"seed":n` and
// `,"prompt_tokens":n,"completion_tokens":n,"cached_tokens":n` (flat: readers search for the single brace).
std::string chunk_json(const AnswerHeader& header, const Choice& piece, bool first,
                       ChunkUsage shown = ChunkUsage::kNone, const Usage& usage = {});
// The last chunk of include_usage: no choices, only the usage.
std::string usage_chunk_json(const AnswerHeader& header, const Usage& usage);

// The usage in an OpenAI-like server's answer.
struct ReportedUsage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  std::optional<int64_t> cached_tokens;  // not every server sends it
  int64_t reasoning_tokens = 0;          // among completion_tokens
  bool answer_only = false;              // it has no count of the prompt: a later event of the Messages API
};
// Reads a `usage` object: a chat's (prompt_tokens), one of the Responses API (input_tokens), or one of the
// Messages API, whose input_tokens are without those that were read from a cache, or written to it. nullopt
// if it is not a valid one.
std::optional<ReportedUsage> parse_usage(std::string_view json);

struct ModelCard {
  std::string id;
  int64_t created_s = 0;
  std::string owned_by = "troupe";
  int64_t max_model_len = 0;  // 0: unknown
};
std::string models_json(const std::vector<ModelCard>& models);
std::string model_json(const ModelCard& card);
// The model of a path "/v1/models/ID", whose ID may hold slashes, percent-encoded or not. Empty: another
// path.
std::string model_of_path(std::string_view path);
// Reads another server's /v1/models answer (ours or vLLM's). Entries that name no model are left out; the
// error: it is no such list, or has no other ones.
ApiResult<std::vector<ModelCard>> parse_models(std::string_view body);

// A worker's load report: GET /v1/load.
struct LoadReport {
  // A set's work since the epoch began: counters only rise.
  struct SetWork {
    Hash128 set;
    int64_t work_tokens_total = 0;
    int64_t prefix_tokens = 0;  // by the worker's own count; 0: not known
    bool operator==(const SetWork&) const = default;
  };

  std::string epoch;  // changes when the cache starts empty
  bool ready = false;
  int64_t running = 0;
  int64_t waiting = 0;
  int64_t pending_prefill_tokens = 0;
  int64_t work_tokens_total = 0;
  int64_t kv_blocks_total = 0;
  int64_t kv_blocks_free = 0;
  int64_t kv_blocks_pinned = 0;  // blocks of prefixes, out of those that are not free
  int64_t block_size = 0;        // tokens; 0: not reported
  int64_t max_num_seqs = 0;
  std::vector<SetWork> sets = {};
};
std::string load_report_json(const LoadReport& report);
ApiResult<LoadReport> parse_load_report(std::string_view body);

}  // namespace troupe
