#include "common/core/regular_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

#include "tests/common/temp_dir.h"

namespace troupe::regular_file_test {

using ::testing::HasSubstr;

std::string error_of(const std::string& path, size_t bytes_max = 1 << 20) {
  const auto text = read_regular_file(path, bytes_max);
  return text.ok() ? "" : std::string(text.status().message());
}

TEST(RegularFile, IsReadWholeAndThroughLinks) {
  const TempDir folder;
  const std::string long_text(300'000, 'x');
  const std::string path = folder.write("a", long_text);
  EXPECT_EQ(*read_regular_file(path, long_text.size()), long_text);
  const std::string link = folder.path() + "/link";
  ASSERT_EQ(::symlink(path.c_str(), link.c_str()), 0);
  EXPECT_EQ(*read_regular_file(link, 1 << 20), long_text);
  EXPECT_EQ(*read_regular_file(folder.write("empty", ""), 10), "");
}

// Its size is told as 0, and what it holds is there all the same.
TEST(RegularFile, OneThatTheSystemMakesUpIsReadToItsEnd) {
  EXPECT_THAT(*read_regular_file("/proc/self/status", 1 << 20), HasSubstr("VmRSS"));
  EXPECT_THAT(error_of("/proc/self/status", 10), HasSubstr("larger than the 10 bytes"));
}

TEST(RegularFile, OneThatIsTooLargeIsRefusedUnread) {
  const TempDir folder;
  EXPECT_THAT(error_of(folder.write("a", "123456"), 5), HasSubstr("/a: larger than the 5 bytes allowed"));
  const std::string sparse = folder.write("sparse", "");
  ASSERT_EQ(::truncate(sparse.c_str(), off_t{1} << 40), 0);
  EXPECT_THAT(error_of(sparse), HasSubstr("larger than"));
}

TEST(RegularFile, AnythingElseIsRefusedByName) {
  const TempDir folder;
  const std::string pipe = folder.path() + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(error_of(pipe), pipe + ": is a pipe; a regular file is needed");
  EXPECT_EQ(error_of(folder.path()), folder.path() + ": is a directory; a regular file is needed");
  EXPECT_EQ(error_of("/dev/zero"), "/dev/zero: is a device; a regular file is needed");
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  const std::string socket_path = folder.path() + "/s";
  std::strncpy(name.sun_path, socket_path.c_str(), sizeof name.sun_path - 1);
  const OpenFile listener(::socket(AF_UNIX, SOCK_STREAM, 0));
  ASSERT_EQ(::bind(listener.descriptor(), reinterpret_cast<const sockaddr*>(&name), sizeof name), 0);
  EXPECT_EQ(error_of(socket_path), socket_path + ": is a socket; a regular file is needed");
  EXPECT_THAT(error_of(folder.path() + "/none"), HasSubstr("/none: cannot open: No such file"));
  EXPECT_TRUE(path_exists(pipe));
  EXPECT_FALSE(path_exists(folder.path() + "/none"));
}

}  // namespace troupe::regular_file_test
