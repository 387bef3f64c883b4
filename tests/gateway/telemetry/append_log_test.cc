#include "gateway/telemetry/append_log.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace troupe {
namespace {

std::string text_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// While this lives no file can be opened.
class NoMoreFiles {
 public:
  NoMoreFiles() {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit none = before_;
    none.rlim_cur = 0;
    setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoMoreFiles() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

TEST(AppendLog, AMovedFileIsLeftOnceAnotherCanBeOpened) {
  const auto folder =
      std::filesystem::temp_directory_path() / ("append_log_test." + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  const std::string path = folder / "usage", moved = folder / "usage.1", again = folder / "usage.2";
  Metrics metrics;
  const Logger log(LogLevel::kError);
  auto fd = AppendLog::open("usage", path);
  ASSERT_TRUE(fd.ok());
  {
    AppendLog file(
        *fd, path,
        {"usage", log, metrics.counter("a_total", ""), metrics.counter("b_total", ""), [] { return false; }});
    file.write("one\n");
    {
      const NoMoreFiles full;
      file.move_to(moved);
      file.write("two\n");
    }
    file.move_to(again);
    file.write("three\n");
  }
  EXPECT_EQ(text_of(moved), "one\ntwo\n") << "no line is lost meanwhile";
  EXPECT_EQ(text_of(path), "three\n");
  EXPECT_FALSE(std::filesystem::exists(again));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace troupe
