#pragma once

// Remembers across starts which of several implementations was measured to be the fastest, in a text file, a
// line a measurement:
//
//   KEY <tab> NAME <tab> MICROSECONDS
//
// It is a cache. A file that is missing, cut short or full of something else costs measuring again and
// nothing else; keys name all that a measurement depends on (device, library's version, shape, types).

#include <map>
#include <string>
#include <string_view>

#include "common/core/status.h"

namespace troupe {

class Tuning {
 public:
  // Reads the file. "": nothing is read, and save() does nothing.
  explicit Tuning(std::string path = "");

  // The name put under the key, or null.
  const std::string* find(std::string_view key) const;
  // REQUIRES: neither text holds a tab or a line's end.
  void put(std::string_view key, std::string_view name, double microseconds);
  size_t size() const { return entries_.size(); }

  // Writes what was put, with what others have written meanwhile, as one: a reader sees the old file or the
  // new one. Makes the folder. Nothing to do where nothing was put.
  Status save();

 private:
  struct Entry {
    std::string name;
    double microseconds = 0;
    bool own = false;  // put here, not read
  };
  using Entries = std::map<std::string, Entry, std::less<>>;
  static Entries read(const std::string& path);

  std::string path_;
  Entries entries_;
  bool changed_ = false;
};

}  // namespace troupe
