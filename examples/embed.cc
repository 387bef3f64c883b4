// The worker's engine inside a program of your own: no server, no gateway. Loads a model directory, asks one
// question as a client would (the body is OpenAI's), and prints the answer's tokens as they come.
//
//   build/bin/embed_example configs/demo-model "You are playing Newton. …" "Who travels with you?"

#include <array>
#include <cstdio>
#include <future>
#include <string>

#include "common/json/json.h"
#include "worker/engine/engine.h"
#include "worker/input/prompt_pipeline.h"
#include "worker/load.h"

namespace troupe {
namespace {

int fail(const std::string& why) {
  std::fprintf(stderr, "embed_example: %s\n", why.c_str());
  return 1;
}

std::string chat_body(const std::string& model, const std::string& system, const std::string& question) {
  const bj::object body = {
      {"model", model},
      {"temperature", 0},
      {"max_tokens", 48},
      {"messages", {{{"role", "system"}, {"content", system}}, {{"role", "user"}, {"content", question}}}}};
  return to_json(body);
}

int ask(const char* model_dir, const std::string& system, const std::string& question) {
  // Settings are those of troupe-worker, by the same names. float32: the same text on every machine.
  WorkerSettings settings;
  SettingsSchema schema("embed_example", "asks one question");
  describe_worker_settings(schema, settings);
  const std::array flags{"embed_example", "--model", model_dir, "--device", "cpu", "--dtype", "float32"};
  const auto parsed = schema.parse(flags.size(), flags.data());
  if (!parsed.ok()) return fail(parsed.status().ToString());
  if (const Status status = resolve_worker_settings(settings); !status.ok()) return fail(status.ToString());

  // Weights, tokenizer, template. Metrics and log outlive the engine.
  Metrics metrics;
  const Logger log(LogLevel::kWarn);
  auto model = load_model(settings, metrics, log);
  if (!model.ok()) return fail(model.status().ToString());

  // Text in: the chat template writes the messages, the tokenizer encodes them, every default is settled.
  const auto body = chat_body(model->served.name, system, question);
  const auto request = prepare_request(model->served, GenerateRequest::Kind::kChat, body, /*random_seed=*/1);
  if (!request.ok()) return fail(request.error().message);

  // Pieces come on the engine's text-out thread, which the promise outlives; the last one ends the answer.
  std::promise<Status> ended;
  const auto print = [&ended](const EngineOutput& piece) {
    for (const TokenId id : piece.ids) std::fprintf(stderr, "%d ", id);
    std::fwrite(piece.text.data(), 1, piece.text.size(), stdout);
    std::fflush(stdout);
    if (piece.finish != FinishReason::kNone || !piece.error.ok()) ended.set_value(piece.error);
  };
  const auto options = engine_options(settings, *model);
  Engine engine(std::move(model->runner), model->tokenizer.get(), options, metrics, log);
  engine.start();
  if (const auto id = engine.submit(request.value().engine, print); !id.ok())
    return fail(id.status().ToString());
  const Status status = ended.get_future().get();
  std::puts("");
  return status.ok() ? 0 : fail(status.ToString());
}

}  // namespace
}  // namespace troupe

int main(int argc, char** argv) {
  if (argc == 4) return troupe::ask(argv[1], argv[2], argv[3]);
  std::fputs("usage: embed_example MODEL_DIR SYSTEM QUESTION\n", stderr);
  return 2;
}
