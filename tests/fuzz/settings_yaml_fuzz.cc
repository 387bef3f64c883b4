// Whatever a settings file holds, it is refused with a message that begins with the file's name, or every
// setting is within its range afterwards.

#include <cstdlib>

#include "common/json/json.h"
#include "common/settings/schema.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string host = "h", device = "auto";
  int64_t port = 1, body_bytes = 1;
  double share = 0.5;
  bool flag = true;
  std::vector<std::string> urls;
  troupe::SettingsSchema schema("fuzz", "settings");
  schema.add("host", &host, "text");
  schema.add("device", &device, "choice").choices({"auto", "cpu"});
  schema.add("port", &port, "integer").range(0, 65535);
  schema.add("limits.body_bytes", &body_bytes, "nested integer").range(1, 100);
  schema.add("limits.share", &share, "nested number").range(0, 1);
  schema.add("flag", &flag, "bool");
  schema.add("urls", &urls, "list");
  const auto status =
      schema.load_yaml(std::string_view(reinterpret_cast<const char*>(data), size), "fuzz.yaml");
  if (!status.ok() && !troupe::to_std(status.message()).starts_with("fuzz.yaml:")) std::abort();
  if (port < 0 || port > 65535 || body_bytes < 1 || body_bytes > 100) std::abort();
  if (!(share >= 0 && share <= 1)) std::abort();
  if (device != "auto" && device != "cpu") std::abort();
  for (const std::string& url : urls) {
    if (url.empty()) std::abort();
  }
  return 0;
}
