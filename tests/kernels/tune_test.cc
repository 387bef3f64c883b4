// Measurements, kept in a file.

#include "kernels/tune.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/common/temp_dir.h"
#include "tests/kernels/kernel_testing.h"

namespace troupe::tune_test {

std::string read_file(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(Tuning, AreFoundAgainByTheNextProcess) {
  const TempDir dir;
  const std::string path = dir.path() + "/made/for/it/tuning";
  Tuning first(path);
  EXPECT_EQ(first.find("a"), nullptr);
  first.put("a", "rows", 1.5);
  first.put("b", "library 7", 2);
  ASSERT_TRUE(first.save().ok());
  EXPECT_EQ(read_file(path), "a\trows\t1.5\nb\tlibrary 7\t2\n");
  const Tuning second(path);
  ASSERT_NE(second.find("b"), nullptr);
  EXPECT_EQ(*second.find("b"), "library 7");
}

TEST(Tuning, TwoWritersKeepEachOthersMeasurements) {
  const TempDir dir;
  const std::string path = dir.path() + "/tuning";
  Tuning one(path), other(path);
  one.put("a", "rows", 1);
  other.put("b", "tiles", 2);
  ASSERT_TRUE(one.save().ok());
  ASSERT_TRUE(other.save().ok());
  EXPECT_EQ(Tuning(path).size(), 2u);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 1)
      << "nothing is left beside it";
}

TEST(Tuning, LinesOfSomethingElseAreDropped) {
  const TempDir dir;
  const std::string path = dir.path() + "/tuning";
  std::ofstream(path) << "a\trows\t1\nno tabs\nb\t\t2\n\tx\t2\nc\trows\tfast\nd\trows\t3\te\nf\tro";
  const Tuning tuning(path);
  EXPECT_EQ(tuning.size(), 1u);
  EXPECT_NE(tuning.find("a"), nullptr);
}

TEST(Tuning, AFolderThatCannotBeWrittenIsSaid) {
  const TempDir dir;
  std::ofstream(dir.path() + "/file") << "x";
  Tuning tuning(dir.path() + "/file/tuning");
  EXPECT_TRUE(tuning.save().ok()) << "nothing was put";
  tuning.put("a", "rows", 1);
  EXPECT_NE(tuning.save().message().find("/file/tuning cannot be written"), std::string::npos);
  Tuning nowhere;
  nowhere.put("a", "rows", 1);
  EXPECT_TRUE(nowhere.save().ok());
}

TEST(TuningDeathTest, AnEntryIsOneLine) {
  Tuning tuning;
  EXPECT_DEATH(tuning.put("a\tb", "rows", 1), "no line of its own");
  EXPECT_DEATH(tuning.put("a", "rows\n", 1), "no line of its own");
}

}  // namespace troupe::tune_test
