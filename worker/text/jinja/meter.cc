#include "worker/text/jinja/meter.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/work_limit.h"
#include "worker/text/jinja/value.h"

namespace troupe::jinja {
namespace {

constexpr size_t kNameBytesMax = 200;

thread_local Meter* current_meter = nullptr;

}  // namespace

void Meter::read(int64_t bytes) {
  read_bytes_ += bytes;
  if (!count_work(static_cast<size_t>(bytes)).ok()) throw JinjaError("its time is over");
  if (read_bytes_ / kTextBytesAStep > steps_max_)
    throw JinjaError(absl::StrCat("more than ", steps_max_, " steps"));
}

void Meter::make(size_t bytes) {
  made_bytes_ += bytes;
  if (made_bytes_ > made_bytes_max_)
    throw JinjaError(absl::StrCat("more than ", made_bytes_max_, " bytes of text in all"));
}

MeterScope::MeterScope(Meter& meter) : outer_(std::exchange(current_meter, &meter)) {}

MeterScope::~MeterScope() {
  current_meter = outer_;
}

void charge_read(size_t bytes) {
  if (current_meter != nullptr) current_meter->read(static_cast<int64_t>(bytes));
}

void charge_characters(size_t bytes) {
  charge_read(bytes * static_cast<size_t>(kTextBytesAStep / kCharactersAStep));
}

void charge_made(size_t bytes) {
  if (current_meter != nullptr) current_meter->make(bytes);
}

std::string_view clipped(std::string_view name) {
  return clipped(name, kNameBytesMax);
}

std::string_view clipped(std::string_view text, size_t bytes_max) {
  if (text.size() <= bytes_max) return text;
  size_t end = bytes_max;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end);
}

}  // namespace troupe::jinja
