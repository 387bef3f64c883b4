#include "common/core/program_path.h"

#include <filesystem>

#include "absl/strings/str_cat.h"

namespace troupe {

StatusOr<std::string> find_program_files(const std::string& item) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (error) return absl::NotFoundError(absl::StrCat("/proc/self/exe: ", error.message()));
  for (fs::path folder = program.parent_path();; folder = folder.parent_path()) {
    for (const fs::path& root : {folder, folder / "share/troupe"}) {
      if (fs::exists(root / item, error)) return root.string();
    }
    if (folder == folder.root_path()) break;
  }
  return absl::NotFoundError(absl::StrCat("no directory above ", program.parent_path().string(), " holds ",
                                          item, ", nor share/troupe in one"));
}

}  // namespace troupe
