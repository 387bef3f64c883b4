#include "sim/cli/help_page.h"

#include <algorithm>
#include <array>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/check.h"

namespace troupe::sim {

namespace {

struct Page {
  std::string_view program, example;
  std::array<std::string_view, 14> first;  // flags, without --; the last ones may be empty
};
constexpr std::array kPages{
    Page{"troupe-sim replay",
         "troupe-sim replay --trace traffic.jsonl --profile l40s-qwen2.5-7b --nodes 4 --html page.html",
         {"trace", "like", "personas", "rate", "duration-s", "nodes", "profile", "policy", "warmup-s",
          "slo-ttft-ms", "slo-tpot-ms", "faults", "html", "report"}},
    Page{
        "troupe-sim compare",
        "troupe-sim compare --trace traffic.jsonl --nodes 4 --policies affinity,round-robin --html page.html",
        {"trace", "policies", "like", "personas", "rate", "duration-s", "nodes", "profile", "warmup-s",
         "slo-ttft-ms", "slo-tpot-ms", "html", "report"}},
    Page{"troupe-sim capacity",
         "troupe-sim capacity --trace traffic.jsonl --profile l40s-qwen2.5-7b --nodes 4",
         {"trace", "like", "personas", "rate", "duration-s", "nodes", "profile", "policy", "warmup-s",
          "slo-ttft-ms", "slo-tpot-ms", "goodput", "html", "report"}},
    Page{"troupe-sim drive",
         "troupe-sim drive --url http://127.0.0.1:30000 --personas 50 --rate 5 --duration-s 60",
         {"url", "model", "trace", "rate-scale", "personas", "rate", "duration-s", "warmup-s", "slo-ttft-ms",
          "slo-tpot-ms", "requests", "html", "report"}},
    Page{"troupe-sim plan",
         "troupe-sim plan --trace azure.csv --model llama-3.1-8b --slo-ttft-ms 1000 --slo-tpot-ms 50",
         {"trace", "model", "profile", "gpu", "slo-ttft-ms", "slo-tpot-ms", "goodput", "rate-scale", "load",
          "prompt-tokens", "hit", "output-tokens", "price-per-hour", "html"}},
    Page{"troupe-sim synth persona",
         "troupe-sim synth persona --personas 200 --rate 10 --duration-s 600 -o traffic.jsonl.gz",
         {"out", "like", "personas", "zipf", "card-tokens", "turns", "user-tokens", "output-tokens", "rate",
          "duration-s", "context", "seed"}},
};

const Page& page_of(std::string_view program) {
  const auto found =
      std::find_if(kPages.begin(), kPages.end(), [&](const Page& p) { return p.program == program; });
  TROUPE_CHECK(found != kPages.end(), "no page for " + std::string(program));
  return *found;
}

// A flag's lines of SettingsSchema::help(): one, or two where the flag is long.
struct Entry {
  std::string name;
  std::string text;
};

std::string name_of_entry(std::string_view line) {
  std::string_view name = line.substr(line.find("--") + 2);
  if (name.starts_with("[no-]")) name.remove_prefix(5);
  return std::string(name.substr(0, name.find_first_of(" \n")));
}

// Takes the entries from the front of `text`.
std::vector<Entry> take_entries(std::string_view& text) {
  std::vector<Entry> entries;
  while (text.starts_with("  ")) {
    const std::string_view line = text.substr(0, text.find('\n') + 1);
    if (line.starts_with("  --")) entries.push_back({name_of_entry(line), ""});
    TROUPE_CHECK(!entries.empty(), "a flag's description begins with its flag");
    entries.back().text += line;
    text.remove_prefix(line.size());
  }
  return entries;
}

}  // namespace

std::string_view example_of(std::string_view program) {
  return page_of(program).example;
}

std::string_view trace_words() {
  return R"(A trace is JSON lines, a request each, gzipped or not; a gateway writes one with --record:
  {"timestamp": 27000, "input_length": 1030, "output_length": 500, "hash_ids": [0, 14, 15]}
    timestamp                    in ms, not falling
    input_length, output_length  tokens of prompt and answer
  and, where known:
    hash_ids            an id for each block of the prompt and all before it: equal ids, equal beginnings.
                        Without them a prompt shares what the next two tell, or nothing
    session             (or session_id) the conversation: its prompts continue each other
    set, prefix_length  the persona, and the tokens of its prompt that all its requests begin with
    key, turn           the API key's name; the turn of the conversation, from 1
    block_size          tokens a block: where absent 512, or 16 without hash_ids
or a table with a heading as Azure's (TIMESTAMP,ContextTokens,GeneratedTokens) or BurstGPT's; the other names
above are read as columns, too.
)";
}

std::string help_page(std::string_view program, const SettingsSchema& schema) {
  constexpr std::string_view kSettings = "Settings:\n";
  const Page& page = page_of(program);
  const std::string help = schema.help();
  const size_t at = help.find(kSettings);
  TROUPE_CHECK(at != std::string::npos, "no settings in the help of " + std::string(program));
  std::string_view rest = std::string_view(help).substr(at + kSettings.size());
  const std::vector<Entry> entries = take_entries(rest);
  std::string first, others;
  for (const std::string_view name : page.first) {
    if (name.empty()) continue;
    const auto found =
        std::find_if(entries.begin(), entries.end(), [&](const Entry& e) { return e.name == name; });
    TROUPE_CHECK(found != entries.end(), std::string(program) + " has no flag --" + std::string(name));
    first += found->text;
  }
  for (const Entry& entry : entries) {
    if (std::find(page.first.begin(), page.first.end(), entry.name) == page.first.end()) others += entry.text;
  }
  std::string out = absl::StrCat(help.substr(0, at), "Example:\n  ", to_absl(page.example),
                                 "\n\nMost used:\n", first, "\n");
  if (first.find("--trace") != std::string::npos) absl::StrAppend(&out, to_absl(trace_words()), "\n");
  return absl::StrCat(out, "All others:\n", others, to_absl(rest));
}

}  // namespace troupe::sim
