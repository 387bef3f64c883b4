#include "gateway/cluster/persona_file.h"

#include <chrono>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/regular_file.h"
#include "common/net/timer.h"
#include "gateway/cluster/replaced_file.h"
#include "gateway/persona/record.h"

namespace troupe {
namespace {

constexpr std::string_view kHead = R"({"troupe":"personas","version":1})";
constexpr size_t kFileBytesMax = size_t{1} << 30;
constexpr auto kLook = std::chrono::milliseconds(2);

Status as_refused(const Status& status) {
  if (status.ok()) return status;
  return absl::InvalidArgumentError(absl::StrCat("personas.file: ", status.message()));
}

// Calls `take` with each line behind the first.
Status read_personas(const std::string& path, const std::function<void(Persona persona)>& take) {
  const auto broken = [&path](const Status& why, size_t line) {
    return absl::InvalidArgumentError(absl::StrCat("personas.file: ", path, ": line ", line, ": ",
                                                   why.message(),
                                                   " (move it away to begin without its personas)"));
  };
  const auto read = read_regular_file(path, kFileBytesMax);
  if (!read.ok()) return as_refused(read.status());
  if (read->empty()) return broken(invalid_argument("is empty"), 1);
  std::string_view rest = *read;
  for (size_t line = 1; !rest.empty(); ++line) {
    const size_t end = rest.find('\n');
    if (end == std::string_view::npos) return broken(invalid_argument("is cut off"), line);
    const std::string_view record = rest.substr(0, end);
    rest.remove_prefix(end + 1);
    if (line == 1) {
      if (record != kHead) return broken(invalid_argument(absl::StrCat("must be ", to_absl(kHead))), line);
      continue;
    }
    auto persona = parse_persona_record(record);
    if (!persona.ok()) return broken(persona.status(), line);
    take(*std::move(persona));
  }
  return absl::OkStatus();
}

// Its key is there for as long as this is, however its task ends.
class UnderWay {
 public:
  UnderWay(std::set<PersonaRegistry::Key>& keys, PersonaRegistry::Key key)
      : keys_(keys), key_(std::move(key)) {
    keys_.insert(key_);
  }
  ~UnderWay() { keys_.erase(key_); }
  UnderWay(const UnderWay&) = delete;
  UnderWay& operator=(const UnderWay&) = delete;

 private:
  std::set<PersonaRegistry::Key>& keys_;
  const PersonaRegistry::Key key_;
};

}  // namespace

PersonaFile::PersonaFile(std::string path, const Parts& parts)
    : path_(std::move(path)), parts_(parts), writer_([this] { write_texts(); }) {}

PersonaFile::~PersonaFile() {
  {
    const MutexLock lock(mutex_);
    closing_ = true;
  }
  changed_.notify_one();
  writer_.join();
}

Status PersonaFile::check(const std::string& path) {
  if (!path_exists(path)) return as_refused(check_creatable(path));
  return read_personas(path, [](Persona) {});
}

Status PersonaFile::load() {
  if (!path_exists(path_)) return as_refused(check_creatable(path_));
  return read_personas(path_, [this](Persona persona) {
    lines_[{persona.owner, persona.name}] = persona_record_json(persona);
    parts_.registry.adopt(std::move(persona));
  });
}

Task<Status> PersonaFile::keep(Persona persona) {
  const Key key{persona.owner, persona.name};
  if (under_way_.contains(key)) {  // what this one was made of is out of date
    Timer timer(parts_.executor);
    while (under_way_.contains(key)) {
      timer.expires_after(kLook);
      co_await timer.async_wait(use_task);
    }
    co_return absl::AbortedError("another change was first");
  }
  const UnderWay mark(under_way_, key);
  const auto had = lines_.find(key);
  std::optional<std::string> before;
  if (had != lines_.end()) before = had->second;
  if (persona.versions.empty()) {
    lines_.erase(key);
  } else {
    lines_[key] = persona_record_json(persona);
  }
  const Status written = co_await write();
  if (written.ok()) {
    PersonaMemory::take(parts_.registry, std::move(persona));
  } else if (before) {
    lines_[key] = *std::move(before);
  } else {
    lines_.erase(key);
  }
  co_return written;
}

// Hands the whole text over, and waits until it was written, or one after it.
Task<Status> PersonaFile::write() {
  std::string text = absl::StrCat(to_absl(kHead), "\n");
  for (const auto& [key, line] : lines_) absl::StrAppend(&text, line, "\n");
  const uint64_t number = ++asked_;
  {
    const MutexLock lock(mutex_);
    next_ = std::move(text);
    next_number_ = number;
  }
  changed_.notify_one();
  Timer timer(parts_.executor);
  while (true) {
    {
      const MutexLock lock(mutex_);
      if (done_number_ >= number) co_return done_;
    }
    timer.expires_after(kLook);
    co_await timer.async_wait(use_task);
  }
}

// The writer's thread.
void PersonaFile::write_texts() {
  while (true) {
    std::optional<std::string> text;
    uint64_t number = 0;
    {
      const MutexLock lock(mutex_);
      while (!next_ && !closing_) changed_.wait(mutex_);
      text = std::exchange(next_, std::nullopt);
      number = next_number_;
    }
    if (!text) return;
    Status written = replace_file(path_, *text);
    if (!written.ok())
      parts_.log.error("personas_not_written", {{"file", path_}, {"why", to_std(written.message())}});
    const MutexLock lock(mutex_);
    done_number_ = number;
    done_ = std::move(written);
  }
}

}  // namespace troupe
