#include "worker/model/load/host_memory.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/common/temp_dir.h"

namespace troupe::host_memory_test {

constexpr int64_t kMib = int64_t{1} << 20;

struct FakeMachine : ::testing::Test {
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(dir.path() + "/" + path).parent_path());
    dir.write(path, text);
  }
  void group(const std::string& folder, const std::string& limit, int64_t used_mib, int64_t evictable_mib) {
    const std::string at = "sys/fs/cgroup" + folder;
    write(at + "/memory.max", limit + "\n");
    write(at + "/memory.current", std::to_string(used_mib * kMib) + "\n");
    write(at + "/memory.stat", "anon 1\ninactive_file " + std::to_string(evictable_mib * kMib) +
                                   "\nactive_file 0\nworkingset_refault_file 7\n");
  }
  int64_t free_mib() const {
    const auto memory = host_memory(dir.path());
    return memory ? memory->free_bytes / kMib : -1;
  }
  std::string source() const { return host_memory(dir.path())->source.substr(dir.path().size()); }

  const TempDir dir;
};

TEST_F(FakeMachine, HasWhatIsAvailableWithoutAGroup) {
  EXPECT_EQ(free_mib(), -1) << "no file says";
  write("proc/meminfo", "MemTotal:  8192 kB\nMemFree:  1024 kB\nMemAvailable:    4096 kB\n");
  EXPECT_EQ(free_mib(), 4);
  EXPECT_EQ(source(), "/proc/meminfo");
}

TEST_F(FakeMachine, GroupLeavesWhatIsNotTakenBesidePagesOfFiles) {
  write("proc/meminfo", "MemAvailable: 4194304 kB\n");
  write("proc/self/cgroup", "1:name=systemd:/elsewhere\n0::/system.slice/worker.service\n");
  group("/system.slice/worker.service", "max", 300, 0);
  EXPECT_EQ(free_mib(), 4096);
  group("/system.slice/worker.service", std::to_string(1024 * kMib), 300, 100);
  EXPECT_EQ(free_mib(), 824);
  EXPECT_EQ(source(), "/sys/fs/cgroup/system.slice/worker.service/memory.max");
  group("/system.slice", std::to_string(512 * kMib), 400, 0);
  EXPECT_EQ(free_mib(), 112) << "the group around it leaves less";
  group("/system.slice", std::to_string(512 * kMib), 900, 0);
  EXPECT_EQ(free_mib(), 0);
}

TEST_F(FakeMachine, ContainerSeesItsGroupAsTheRoot) {
  write("proc/meminfo", "MemAvailable: 4194304 kB\n");
  write("proc/self/cgroup", "0::/kubepods/of/the/host\n");
  group("", std::to_string(256 * kMib), 56, 0);
  EXPECT_EQ(free_mib(), 200);
}

TEST_F(FakeMachine, GroupsOfTheFirstVersionCountToo) {
  write("proc/meminfo", "MemAvailable: 4194304 kB\n");
  write("proc/self/cgroup", "5:memory:/docker/a\n4:cpu,cpuacct:/docker/a\n");
  const std::string at = "sys/fs/cgroup/memory/docker/a/memory.";
  write(at + "limit_in_bytes", std::to_string(128 * kMib));
  write(at + "usage_in_bytes", std::to_string(28 * kMib));
  EXPECT_EQ(free_mib(), 100);
}

TEST_F(FakeMachine, OddFilesSayNothing) {
  write("proc/meminfo", "MemAvailable: 99999999999999999999 kB\n");
  write("proc/self/cgroup", "0::/" + std::string(9000, '/') + "\n0:\n:\n\n");
  group("", "-5", 1, 0);
  EXPECT_EQ(free_mib(), -1);
  write("proc/meminfo", "MemAvailable:\n");
  group("", "", 1, 0);
  EXPECT_EQ(free_mib(), -1);
  write("proc/meminfo", std::string(1 << 20, 'x'));
  EXPECT_EQ(free_mib(), -1);
}

TEST(HostMemory, OfThisMachineIsKnown) {
  const auto memory = host_memory();
  ASSERT_TRUE(memory.has_value());
  EXPECT_GT(memory->free_bytes, kMib);
}

}  // namespace troupe::host_memory_test
