// drive: the same requests as replay, against a live gateway.

#include <cstdio>

#include "sim/cli/command_line.h"
#include "sim/cli/commands.h"
#include "sim/cli/options.h"
#include "sim/cli/requests_file.h"
#include "sim/live/live_replay.h"
#include "sim/report/html.h"
#include "sim/report/output_file.h"
#include "sim/report/report.h"

namespace troupe::sim {

namespace {

PageFacts live_facts(const SourceFlags& source, const LiveReplayOptions& options, std::string command) {
  PageFacts facts;
  facts.title = "troupe-sim drive";
  facts.source = source_description(source);
  facts.made = made_words();
  facts.command = std::move(command);
  facts.warmup_s = options.warmup_s;
  facts.slo_ttft_ms = options.slo_ttft_ms;
  facts.slo_tpot_ms = options.slo_tpot_ms;
  facts.live = true;
  return facts;
}

}  // namespace

int drive_command(int argc, const char* const* argv) {
  constexpr char kProgram[] = "troupe-sim drive";
  SourceFlags source_flags;
  LiveReplayOptions options;
  std::vector<std::string> urls;
  std::string report, html, requests_path, api = "chat";
  int64_t seed = 1, kv_cache_tokens = 0;
  SettingsSchema schema(kProgram, "the same requests against a live gateway: what does it really do?");
  schema.add("url", &urls,
             "of a gateway or any OpenAI-like server, as http://127.0.0.1:30000; several: asked in turns");
  schema.add("model", &options.model, "empty: the first that the server lists");
  schema.add("api", &api, "ask as").choices({"chat", "completions"});
  schema.add("connections", &options.connections, "requests in flight; what is due beyond is lost")
      .range(1, 100'000);
  schema.add("timeout_s", &options.timeout_s, "an answer not whole by then is lost")
      .range(0.1, 1e5)
      .unit("s");
  schema
      .add("retries", &options.retries,
           "so many times a request that broke off without an answer is sent again, to the next url")
      .range(0, 10);
  schema
      .add("fault_at_s", &options.fault_at_s,
           "something is broken then, by somebody else: report figures of the seconds around it; -1: nothing")
      .range(-1, 1e8)
      .unit("s");
  schema.add("warmup_s", &options.warmup_s, "requests that arrive before are sent but not counted")
      .range(0, 1e8)
      .unit("s");
  schema.add("slo_ttft_ms", &options.slo_ttft_ms, "good: first token within").range(0, 1e9).unit("ms");
  schema.add("slo_tpot_ms", &options.slo_tpot_ms, "good: mean time between tokens within")
      .range(0, 1e9)
      .unit("ms");
  schema
      .add("kv_cache_tokens", &kv_cache_tokens,
           "of all workers, for pooled_lru_hit; 0: not known, and there is none")
      .range(0, 1e12);
  schema.add("seed", &seed, "of the persona traffic").range(0, 1e15);
  schema.add("report", &report, "write the report here, as JSON; -: stdout").path();
  schema.add("html", &html, "write a page with the table and plots here, for a browser").path();
  describe_requests(schema, requests_path);
  describe_source(schema, source_flags);
  describe_workload(schema, source_flags);
  if (const auto code = read_source_flags(schema, source_flags, kProgram, argc, argv)) return *code;
  if (const Status checked = check_source(source_flags, argc, argv); !checked.ok())
    return fail(kProgram, checked);
  if (const Status checked = check_outputs({report, html}); !checked.ok()) return fail(kProgram, checked);
  if (urls.empty()) return fail(kProgram, invalid_argument("--url: is missing, as http://127.0.0.1:30000"));
  for (const std::string& url : urls) {
    auto endpoint = Endpoint::parse(url);
    if (!endpoint.ok()) return fail(kProgram, annotate(endpoint.status(), "--url"));
    options.endpoints.push_back(*std::move(endpoint));
  }
  // https:// is checked with the system's authorities (or those of OpenSSL's SSL_CERT_FILE).
  auto tls = TlsContext::for_client(TlsFiles(), "tls");
  if (!tls.ok()) return fail(kProgram, tls.status());
  options.tls = std::make_shared<TlsSource>(TlsSource{*std::move(tls)});
  options.chat = api == "chat";
  options.pooled_kv_tokens = kv_cache_tokens > 0 ? kv_cache_tokens : -1;
  auto source = open_source(source_flags, static_cast<uint64_t>(seed), 1, 0);
  if (!source.ok()) return fail(kProgram, source.status());
  auto requests = RequestsFile::open(requests_path);
  if (!requests.ok()) return fail(kProgram, requests.status());
  options.on_request = requests->on_request();
  auto result = drive(**source, options);
  if (!result.ok()) return fail(kProgram, result.status());
  if (const Status written = requests->close(); !written.ok()) return fail(kProgram, written);
  result->skipped_lines = print_skipped(kProgram, **source, source_flags);
  print_notes(kProgram, **source);
  result->seed = static_cast<uint64_t>(seed);
  const std::span<const Result> one(&*result, 1);
  if (report != "-") std::fputs(table_text(one).c_str(), stdout);
  const PageFacts facts = live_facts(source_flags, options, command_line(argc, argv));
  Status written = report.empty() ? absl::OkStatus() : write_file(report, report_json(*result));
  if (written.ok() && !html.empty()) written = write_file(html, html_page(one, facts));
  return written.ok() ? kExitOk : fail(kProgram, written);
}

}  // namespace troupe::sim
