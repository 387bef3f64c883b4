#include "common/settings/schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <map>

namespace troupe::settings_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Settings of every kind, described as a program would.
struct Sample {
  std::string host = "127.0.0.1";
  std::string device = "auto";
  int64_t port = 31000;
  double utilization = 0.9;
  bool prefix_caching = true;
  std::vector<std::string> worker_urls;
  int64_t body_bytes = 1024;
  std::string only_in_file = "x";
  SettingsSchema schema{"troupe-sample", "shows settings"};

  Sample() {
    schema.add("host", &host, "address to listen on");
    schema.add("device", &device, "where to compute").choices({"auto", "cpu", "cuda"});
    schema.add("port", &port, "port to listen on").range(0, 65535);
    schema.add("gpu_memory_utilization", &utilization, "share of memory").range(0, 1);
    schema.add("enable_prefix_caching", &prefix_caching, "keep prefixes");
    schema.add("worker_urls", &worker_urls, "workers");
    schema.add("limits.body_bytes", &body_bytes, "largest body").range(1, 1e12).unit("bytes");
    schema.add("only_in_file", &only_in_file, "no flag").positional();
  }

  std::string yaml(std::string_view text) {
    const Status status = schema.load_yaml(text, "f.yaml");
    EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status));
    return status.ok() ? "ok" : std::string(status.message());
  }
  StatusOr<SettingsSchema::Parsed> flags(std::vector<const char*> argv) {
    argv.insert(argv.begin(), "troupe-sample");
    return schema.parse(static_cast<int>(argv.size()), argv.data());
  }
  std::string flags_error(const std::vector<const char*>& argv) {
    const auto parsed = flags(argv);
    return parsed.ok() ? "ok" : std::string(parsed.status().message());
  }
};

static std::string yaml_error(std::string_view text) {
  return Sample().yaml(text);
}

TEST(SettingsYaml, ReadsEveryKindAndNestedMapsAsDottedKeys) {
  Sample s;
  EXPECT_EQ(s.yaml("# comment\nhost: 0.0.0.0\ndevice: cpu\nport: 1\ngpu_memory_utilization: 0.5\n"
                   "enable_prefix_caching: false\nworker_urls:\n  - http://a:1\n  - \"http://b:2\"\n"
                   "limits:\n  body_bytes: 99\nonly_in_file: 'y'\n"),
            "ok");
  EXPECT_EQ(s.host, "0.0.0.0");
  EXPECT_EQ(s.device, "cpu");
  EXPECT_EQ(s.port, 1);
  EXPECT_EQ(s.utilization, 0.5);
  EXPECT_FALSE(s.prefix_caching);
  EXPECT_THAT(s.worker_urls, ElementsAre("http://a:1", "http://b:2"));
  EXPECT_EQ(s.body_bytes, 99);
  EXPECT_EQ(s.only_in_file, "y");
}

TEST(SettingsYaml, QuotedTextKeepsItsCharacters) {
  for (const auto& [text, want] : std::vector<std::pair<std::string_view, std::string_view>>{
           {"host: \"a\\\" \\n#'宋\"\n", "a\" \n#'宋"},
           {"# 宋江\nhost: 'it''s # \"'   # 宋\r\nport: 5\r\n", "it's # \""},
           {"\xEF\xBB\xBFhost: \"b\"\n", "b"},
           {"{\"device\": cpu, \"host\": \"c\"}", "c"}}) {
    Sample s;
    EXPECT_EQ(s.yaml(text), "ok") << text;
    EXPECT_EQ(s.host, want);
  }
}

TEST(SettingsYaml, AnEmptyFileAndEmptyGroupsLeaveDefaults) {
  for (const std::string_view text :
       {"", "\n", "# only a comment\n", "---\n", "limits:\n", "limits: {}\n", "{}"}) {
    EXPECT_EQ(yaml_error(text), "ok") << text;
  }
  Sample s;
  s.worker_urls = {"default"};
  EXPECT_EQ(s.yaml("worker_urls: []"), "ok");
  EXPECT_THAT(s.worker_urls, IsEmpty());
}

TEST(SettingsYaml, UnknownKeysAreRefusedWithLinePathAndTheLikelyName) {
  EXPECT_EQ(yaml_error("host: a\nprot: 5\n"), "f.yaml:2: unknown key 'prot'; did you mean 'port'?");
  EXPECT_EQ(yaml_error("limits:\n  body_byte: 5\n"),
            "f.yaml:2: unknown key 'limits.body_byte'; did you mean 'limits.body_bytes'?");
  EXPECT_EQ(yaml_error("body_bytes: 5\n"),
            "f.yaml:1: unknown key 'body_bytes'; did you mean 'limits.body_bytes'?");
  EXPECT_EQ(yaml_error("enable-prefix-caching: true\n"),
            "f.yaml:1: unknown key 'enable-prefix-caching'; did you mean 'enable_prefix_caching'?");
  EXPECT_EQ(yaml_error("completely_different_thing: 5\n"),
            "f.yaml:1: unknown key 'completely_different_thing'");
  EXPECT_THAT(yaml_error("nothing:\n"), HasSubstr("unknown key 'nothing'"));
  EXPECT_THAT(yaml_error("nothing: {}\n"), HasSubstr("unknown key 'nothing'"));
  EXPECT_THAT(yaml_error("nothing: []\n"), HasSubstr("unknown key 'nothing'"));
}

TEST(SettingsYaml, DuplicateKeysAreRefusedAtEveryDepth) {
  EXPECT_EQ(yaml_error("port: 1\nhost: a\nport: 2\n"), "f.yaml:3: duplicate key 'port', first set in line 1");
  EXPECT_EQ(yaml_error("limits:\n  body_bytes: 1\n  body_bytes: 2\n"),
            "f.yaml:3: duplicate key 'limits.body_bytes', first set in line 2");
  EXPECT_EQ(yaml_error("limits:\n  body_bytes: 1\nlimits:\n"),
            "f.yaml:3: duplicate key 'limits', first set in line 1");
  EXPECT_THAT(yaml_error("limits.body_bytes: 1\nlimits: {body_bytes: 2}\n"), HasSubstr("duplicate key"));
  EXPECT_THAT(yaml_error("{port: 1, \"port\": 2}"), HasSubstr("duplicate key 'port'"));
}

TEST(SettingsYaml, WrongTypesAndRangesSayWhatWouldBeRight) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"port: abc", "'port' must be an integer from 0 to 65535, not 'abc'"},
      {"port: 70000", "'port' must be an integer from 0 to 65535, not '70000'"},
      {"port: -1", "'port' must be an integer from 0 to 65535, not '-1'"},
      {"port: 5.0", "'port' must be an integer from 0 to 65535, not '5.0'"},
      {"port: 0x10", "'port' must be an integer from 0 to 65535, not '0x10'"},
      {"port: 99999999999999999999", "'port' must be an integer from 0 to 65535, not '99999999999999999999'"},
      {"port: \"5\"", "'port' must be an integer from 0 to 65535, not a quoted string"},
      {"port: [5]", "'port' must be an integer from 0 to 65535, not a list"},
      {"port: {a: 1}", "'port' must be an integer from 0 to 65535, not a map"},
      {"port: {}", "'port' must be an integer from 0 to 65535, not a map"},
      {"port:", "'port' must be an integer from 0 to 65535, not empty (leave the line out for the default)"},
      {"host: ~", "'host' must be a string, not empty (leave the line out for the default)"},
      {"gpu_memory_utilization: 1.5", "'gpu_memory_utilization' must be a number from 0 to 1, not '1.5'"},
      {"gpu_memory_utilization: .nan", "'gpu_memory_utilization' must be a number from 0 to 1, not '.nan'"},
      {"gpu_memory_utilization: nan", "'gpu_memory_utilization' must be a number from 0 to 1, not 'nan'"},
      {"enable_prefix_caching: yes", "'enable_prefix_caching' must be true or false, not 'yes'"},
      {"enable_prefix_caching: 1", "'enable_prefix_caching' must be true or false, not '1'"},
      {"device: gpu", "'device' must be one of auto, cpu, cuda, not 'gpu'"},
      {"worker_urls: http://a", "'worker_urls' must be a list of strings, not 'http://a'"},
      {"worker_urls: [a, {b: c}]", "items of 'worker_urls' must be plain values"},
      {"worker_urls: [{b: c}]", "'worker_urls' items must be plain values"},
      {"worker_urls: [a, [b]]", "items of 'worker_urls' must be plain values"},
      {"worker_urls: [a, ~]", "'worker_urls' has an item without a value"},
      {"worker_urls: [a, '']", "'worker_urls' has an empty item"},
      {"limits: 5", "'limits' must be a map of settings, not a value"},
      {"limits: [5]", "'limits' must be a map of settings, not a value"},
  };
  for (const auto& [text, error] : cases) EXPECT_EQ(yaml_error(text), "f.yaml:1: " + error) << text;
}

TEST(SettingsYaml, ATextOfSeveralLinesEndsWithItsIndent) {
  const auto entries = flatten_yaml("system: |-\n  a\n  'b\nhost: x\n", "f.yaml");
  ASSERT_TRUE(entries.ok()) << entries.status();
  ASSERT_EQ(entries->size(), 2u);
  EXPECT_EQ((*entries)[0].text, "a\n'b");
  EXPECT_EQ((*entries)[1].text, "x");
}

TEST(SettingsYaml, RefusesWhatOnlyAnAttackerOrASlipWouldWrite) {
  EXPECT_THAT(yaml_error("host: &a x\ndevice: *a\n"), HasSubstr("f.yaml:1: anchors"));
  EXPECT_THAT(yaml_error("port: *b\n"), HasSubstr("f.yaml:1: "));
  EXPECT_THAT(yaml_error("host: !!str x\n"), HasSubstr("tags (!name) are not allowed"));
  EXPECT_THAT(yaml_error("host: x\n---\nhost: y\n"), HasSubstr("more than one YAML document"));
  EXPECT_THAT(yaml_error("- a\n- b\n"), HasSubstr("must be a map of settings"));
  EXPECT_THAT(yaml_error("just text"), HasSubstr("must be a map of settings"));
  EXPECT_THAT(yaml_error("? [a]\n: 1\n"), HasSubstr("a key must be a plain word"));
  EXPECT_THAT(yaml_error("\"\": 1\n"), HasSubstr("a key must be a plain word"));
  EXPECT_THAT(yaml_error("host: \"unclosed\nport: 5\n"),
              HasSubstr("f.yaml:1: a quoted value must end on the line"));
  EXPECT_THAT(yaml_error("port: 5\nhost: 'un\n"), HasSubstr("f.yaml:2: a quoted value must end"));
  EXPECT_THAT(yaml_error("host: \"a\\\"\n"), HasSubstr("f.yaml:1: "));
  EXPECT_THAT(yaml_error("worker_urls: [a, \"b\n"), HasSubstr("f.yaml:1: "));
  EXPECT_THAT(yaml_error("host: a\n\tport: 5\n"), HasSubstr("f.yaml:"));
  EXPECT_THAT(yaml_error("host: \xff\n"), HasSubstr("not UTF-8"));
  EXPECT_THAT(yaml_error(std::string_view("host: a\0b\n", 10)), HasSubstr("not UTF-8 text"));
}

TEST(SettingsYaml, SizeAndDepthAreBounded) {
  EXPECT_THAT(yaml_error("# " + std::string(1 << 20, 'x')), HasSubstr("larger than the 1048576 bytes"));
  std::string deep;
  for (int i = 0; i < 17; ++i) deep += "{a: ";
  EXPECT_THAT(yaml_error(deep + "1" + std::string(17, '}')), HasSubstr("nested deeper than 16"));
  EXPECT_THAT(yaml_error(std::string(500'000, '[')), HasSubstr("f.yaml:1: "));
  EXPECT_THAT(yaml_error("a: " + std::string(500'000, '{')), HasSubstr("f.yaml:1: "));
}

TEST(SettingsYaml, FileErrorsCarryThePath) {
  Sample s;
  EXPECT_THAT(std::string(s.schema.load_yaml_file("/nonexistent.yaml").message()),
              HasSubstr("/nonexistent.yaml: cannot open: No such file"));
  EXPECT_THAT(std::string(s.schema.load_yaml_file(testing::TempDir()).message()),
              HasSubstr("is a directory"));
}

TEST(SettingsFlags, FlagsOverrideTheFileWhereverConfigStands) {
  const std::string path = testing::TempDir() + "settings_test.yaml";
  std::ofstream(path) << "port: 1\nhost: from-file\nworker_urls: [a]\n";
  for (const bool config_first : {true, false}) {
    Sample s;
    const std::string config = "--config=" + path;
    const auto parsed =
        config_first ? s.flags({config.c_str(), "--port", "2"}) : s.flags({"--port=2", config.c_str()});
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(s.port, 2);
    EXPECT_EQ(s.host, "from-file");
    EXPECT_THAT(s.worker_urls, ElementsAre("a"));
    EXPECT_EQ(parsed->config_path, path);
  }
  std::ofstream(path) << "port: x\n";
  EXPECT_THAT(Sample().flags_error({"--config", path.c_str()}), HasSubstr(path + ":1: 'port' must be"));
}

TEST(SettingsFlags, BothSpellingsOfAValueAndTheLastOneCounts) {
  Sample s;
  ASSERT_TRUE(
      s.flags({"--port", "5", "--port=6", "--host=a=b", "--limits.body-bytes", "7", "--device", "cuda"})
          .ok());
  EXPECT_EQ(s.port, 6);
  EXPECT_EQ(s.host, "a=b");
  EXPECT_EQ(s.body_bytes, 7);
  EXPECT_EQ(s.device, "cuda");
}

TEST(SettingsFlags, BoolFlagsAreGivenDeniedOrSpelledOut) {
  for (const auto& [flag, want] :
       std::vector<std::pair<const char*, bool>>{{"--enable-prefix-caching", true},
                                                 {"--no-enable-prefix-caching", false},
                                                 {"--enable-prefix-caching=true", true},
                                                 {"--enable-prefix-caching=false", false}}) {
    Sample s;
    s.prefix_caching = !want;
    ASSERT_TRUE(s.flags({flag}).ok());
    EXPECT_EQ(s.prefix_caching, want) << flag;
  }
  EXPECT_THAT(Sample().flags_error({"--enable-prefix-caching=1"}),
              HasSubstr("must be true or false, not '1'"));
  EXPECT_THAT(Sample().flags_error({"--no-enable-prefix-caching=true"}), HasSubstr("takes no value"));
  EXPECT_THAT(Sample().flags_error({"--no-port"}), HasSubstr("unknown flag '--no-port'"));
}

TEST(SettingsFlags, ListsSplitAtCommasAndAddUpAcrossFlags) {
  Sample s;
  s.worker_urls = {"default"};
  ASSERT_TRUE(s.flags({"--worker-urls", "a,b", "--worker-urls=c"}).ok());
  EXPECT_THAT(s.worker_urls, ElementsAre("a", "b", "c"));
  ASSERT_TRUE(s.flags({"--worker-urls="}).ok());
  EXPECT_THAT(s.worker_urls, IsEmpty());
  EXPECT_THAT(s.flags_error({"--worker-urls=a,,b"}), HasSubstr("flag '--worker-urls' has an empty item"));
}

TEST(SettingsFlags, UnknownFlagsAndMissingValuesAreNamed) {
  EXPECT_THAT(Sample().flags_error({"--prt", "5"}),
              HasSubstr("unknown flag '--prt'; did you mean '--port'?"));
  EXPECT_THAT(Sample().flags_error({"--body-bytes", "5"}), HasSubstr("unknown flag '--body-bytes'"));
  EXPECT_THAT(Sample().flags_error({"-p", "5"}), HasSubstr("unknown flag '-p'"));
  EXPECT_THAT(Sample().flags_error({"--port"}), HasSubstr("flag '--port' needs a value"));
  EXPECT_THAT(Sample().flags_error({"--host", "--port"}), HasSubstr("flag '--host' needs a value"));
  EXPECT_THAT(Sample().flags_error({"--port", "-5"}),
              HasSubstr("flag '--port' must be an integer from 0 to 65535, not '-5'"));
  EXPECT_THAT(Sample().flags_error({"--only-in-file", "z"}), HasSubstr("unknown flag '--only-in-file'"));
  EXPECT_THAT(Sample().flags_error({"--help=1"}), HasSubstr("takes no value"));
  EXPECT_THAT(Sample().flags_error({"--config"}), HasSubstr("'--config' needs a value"));
  EXPECT_THAT(Sample().flags_error({"--=5"}), HasSubstr("unknown flag"));
}

TEST(SettingsFlags, OtherWordsAreKeptInOrder) {
  Sample s;
  const auto parsed = s.flags({"tokenize", "--port", "5", "-", "--check-config", "--", "--port", "x"});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_THAT(parsed->positional, ElementsAre("tokenize", "-", "--port", "x"));
  EXPECT_TRUE(parsed->check_config);
  EXPECT_FALSE(parsed->help || parsed->version);
  EXPECT_EQ(s.port, 5);
}

TEST(SettingsFlags, HelpAndVersionReadNothingElse) {
  Sample s;
  const auto parsed = s.flags({"--config", "/nonexistent", "--port", "5", "--version"});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_TRUE(parsed->version);
  EXPECT_EQ(s.port, 31000);
  EXPECT_TRUE(s.flags({"-h"})->help);
}

TEST(SettingsValues, SayWhatIsSetAndWhatMayChange) {
  int64_t limit = 5;
  std::vector<std::string> urls;
  SettingsSchema schema("test", "");
  schema.add("limit", &limit, "how much").live();
  schema.add("group.urls", &urls, "where");
  ASSERT_TRUE(schema.load_yaml("limit: 7\ngroup: {urls: [a, b]}\n", "f").ok());
  const auto values = schema.values();
  ASSERT_EQ(values.size(), 2u);
  EXPECT_EQ(values[0].key, "limit");
  EXPECT_EQ(values[0].text, "7");
  EXPECT_TRUE(values[0].live);
  EXPECT_EQ(values[1].key, "group.urls");
  EXPECT_EQ(values[1].text, "a,b");
  EXPECT_FALSE(values[1].live);
  EXPECT_THAT(schema.help(), HasSubstr("how much (default 7; changes on SIGHUP)"));
}

TEST(SettingsHelp, ShowsEveryKeyWithItsDefaultRangeAndUnit) {
  Sample s;
  const std::string help = s.schema.help();
  for (const char* text :
       {"troupe-sample: shows settings", "--config FILE", "--check-config", "--version", "--help",
        "--host TEXT", "address to listen on (default 127.0.0.1)", "--port INTEGER",
        "port to listen on (an integer from 0 to 65535; default 31000)",
        "one of auto, cpu, cuda; default auto", "--[no-]enable-prefix-caching",
        "keep prefixes (default true)", "--worker-urls A,B", "workers (default empty)", "\nlimits:\n",
        "--limits.body-bytes INTEGER", "in bytes; default 1024", "Only in the file:\n  only_in_file"}) {
    EXPECT_THAT(help, HasSubstr(text));
  }
  EXPECT_EQ(s.schema.keys().size(), 8u);
}

// Targets of the types that the options of a program's parts have.
struct Bound {
  enum class Mode { kExact, kPlan };
  uint16_t port = 80;
  int32_t seqs = 64;
  size_t bytes = 1024, unbounded = 7;
  std::chrono::milliseconds interval{1500};
  std::chrono::seconds grace{30};
  std::chrono::nanoseconds budget = std::chrono::milliseconds(200), tick = std::chrono::milliseconds(2500);
  Mode mode = Mode::kPlan;
  SettingsSchema schema{"troupe-sample", "shows settings"};

  Bound() {
    schema.add("port", &port, "to listen on").range(0, 65535);
    schema.add("seqs", &seqs, "at once").range(-5, 65536);
    schema.add("bytes", &bytes, "at most").range(1, 1e12);
    schema.add("unbounded", &unbounded, "of them");
    schema.add("interval_ms", &interval, "between probes").range(10, 3.6e6).unit("ms");
    schema.add("grace_secs", &grace, "to end");
    schema.add("budget_ms", &budget, "of a step").range(0, 60'000);
    schema.add_fraction("tick_s", &tick, "between plans").range(0.1, 3600).unit("s");
    schema.add_enum("mode", &mode, {{"exact", Mode::kExact}, {"plan", Mode::kPlan}}, "of routing");
  }
  std::string error(std::string_view text) {
    return std::string(to_std(schema.load_yaml(text, "f.yaml").message()));
  }
};

TEST(SettingsBinding, ReadsIntoTheTypesOfOptions) {
  Bound b;
  ASSERT_EQ(b.error("port: 65535\nseqs: -5\nbytes: 1000000000000\nunbounded: 0\ninterval_ms: 3600000\n"
                    "grace_secs: 2\nbudget_ms: 60000\ntick_s: 0.29\nmode: exact\n"),
            "");
  EXPECT_EQ(b.port, 65535);
  EXPECT_EQ(b.seqs, -5);
  EXPECT_EQ(b.bytes, 1'000'000'000'000u);
  EXPECT_EQ(b.unbounded, 0u);
  EXPECT_EQ(b.interval, std::chrono::hours(1));
  EXPECT_EQ(b.grace, std::chrono::seconds(2));
  EXPECT_EQ(b.budget, std::chrono::minutes(1));
  EXPECT_EQ(b.tick, std::chrono::milliseconds(290));
  EXPECT_EQ(b.mode, Bound::Mode::kExact);
}

TEST(SettingsBinding, ShowsValuesInTheKeysUnit) {
  Bound b;
  std::map<std::string, std::string> shown;
  for (const auto& value : b.schema.values()) shown[value.key] = value.text;
  EXPECT_EQ(shown, (std::map<std::string, std::string>{{"port", "80"},
                                                       {"seqs", "64"},
                                                       {"bytes", "1024"},
                                                       {"unbounded", "7"},
                                                       {"interval_ms", "1500"},
                                                       {"grace_secs", "30"},
                                                       {"budget_ms", "200"},
                                                       {"tick_s", "2.5"},
                                                       {"mode", "plan"}}));
  const std::string help = b.schema.help();
  EXPECT_THAT(help, HasSubstr("--interval-ms INTEGER"));
  EXPECT_THAT(help, HasSubstr("--tick-s NUMBER"));
  EXPECT_THAT(help, HasSubstr("--mode TEXT"));
  EXPECT_THAT(help, HasSubstr("of them (default 7)")) << "a type's own bounds are no range";
}

TEST(SettingsBinding, RefusesValuesThatDoNotFitAndKeepsTheOldOnes) {
  const std::pair<const char*, const char*> cases[] = {
      {"port: 65536", "'port' must be an integer from 0 to 65535, not '65536'"},
      {"bytes: -1", "'bytes' must be an integer from 1 to 1000000000000, not '-1'"},
      {"unbounded: -1", "'unbounded' must be an integer from 0 to 9223372036854775807, not '-1'"},
      {"interval_ms: 9", "'interval_ms' must be an integer from 10 to 3600000, not '9'"},
      {"interval_ms: 10.5", "'interval_ms' must be an integer from 10 to 3600000, not '10.5'"},
      {"grace_secs: 9223372037", "'grace_secs' must be an integer from 0 to 9223372036, not '9223372037'"},
      {"grace_secs: -1", "'grace_secs' must be an integer from 0 to 9223372036, not '-1'"},
      {"tick_s: 0", "'tick_s' must be a number from 0.1 to 3600, not '0'"},
      {"tick_s: inf", "'tick_s' must be a number from 0.1 to 3600, not 'inf'"},
      {"mode: strict", "'mode' must be one of exact, plan, not 'strict'"},
  };
  for (const auto& [text, message] : cases) {
    Bound b;
    EXPECT_EQ(b.error(text), std::string("f.yaml:1: ") + message);
    EXPECT_EQ(b.schema.help(), Bound().schema.help());
  }
}

TEST(SettingsBindingDeathTest, RefusesDescriptionsThatCannotHold) {
  Bound b;
  const auto too_far = [&b] { b.schema.add("narrow", &b.port, "a port").range(0, 65536); };
  EXPECT_DEATH(too_far(), "the range of 'narrow' is beyond what its target can hold");
  const auto twice = [&b] { b.schema.add("port", &b.seqs, "again"); };
  EXPECT_DEATH(twice(), "key 'port' is described twice");
  const auto without_unit = [&b] { b.schema.add("interval", &b.interval, "of what?"); };
  EXPECT_DEATH(without_unit(), "key 'interval' does not end with its duration's unit");
}

}  // namespace troupe::settings_test
