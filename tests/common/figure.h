#pragma once

// A figure that a test measured, for the table that tests/run.sh prints of a whole run
// (tests/e2e/figures.py).

#include <cstdio>
#include <cstdlib>
#include <string>

namespace troupe {

// `value`: with its unit; `goal`: what the test asks of it. REQUIRES: no quotes, backslashes or line ends.
inline void figure(const std::string& test, const std::string& name, const std::string& value,
                   const std::string& goal = "") {
  std::printf("figure: %s: %s%s\n", name.c_str(), value.c_str(),
              goal.empty() ? "" : (" (goal " + goal + ")").c_str());
  const char* const path = std::getenv("TROUPE_FIGURES");
  if (path == nullptr) return;
  std::FILE* const file = std::fopen(path, "a");
  if (file == nullptr) return;
  std::fprintf(file,
               R"({"test": "%s", "name": "%s", "value": "%s", "goal": "%s"})"
               "\n",
               test.c_str(), name.c_str(), value.c_str(), goal.c_str());
  std::fclose(file);
}

}  // namespace troupe
