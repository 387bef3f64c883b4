#include "worker/model/load/safetensors.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <boost/json/object.hpp>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/regular_file.h"
#include "common/json/json.h"

namespace troupe {

namespace {

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kHeaderBytesMax = 100'000'000;  // as the reference implementation
constexpr int kHeaderDepthMax = 4;                 // {name: {"shape": [n]}} and one to spare

struct KnownDType {
  std::string_view name;
  uint64_t bytes;
};
constexpr std::array<KnownDType, 15> kKnownDTypes{{{"F64", 8},
                                                   {"F32", 4},
                                                   {"F16", 2},
                                                   {"BF16", 2},
                                                   {"F8_E4M3", 1},
                                                   {"F8_E5M2", 1},
                                                   {"I64", 8},
                                                   {"I32", 4},
                                                   {"I16", 2},
                                                   {"I8", 1},
                                                   {"U64", 8},
                                                   {"U32", 4},
                                                   {"U16", 2},
                                                   {"U8", 1},
                                                   {"BOOL", 1}}};

std::string_view view(const bj::string& s) {
  return {s.data(), s.size()};
}

std::string known_dtype_names() {
  std::string names;
  for (const KnownDType& d : kKnownDTypes)
    absl::StrAppend(&names, names.empty() ? "" : ", ", to_absl(d.name));
  return names;
}

std::optional<uint64_t> dtype_bytes(std::string_view name) {
  for (const KnownDType& d : kKnownDTypes) {
    if (d.name == name) return d.bytes;
  }
  return std::nullopt;
}

// A JSON integer in [0, 2^63), so that sums of two stay within uint64_t.
std::optional<uint64_t> as_count(const bj::value& value) {
  if (value.is_int64() && value.get_int64() >= 0) return static_cast<uint64_t>(value.get_int64());
  return std::nullopt;
}

std::string range_text(const SafetensorsEntry& e) {
  return absl::StrCat("[", e.begin, ", ", e.end, ")");
}

Status tensor_error(std::string_view name, std::string_view reason) {
  return invalid_argument(absl::StrCat("tensor '", to_absl(name), "': ", to_absl(reason)));
}

Status read_shape(const bj::value& value, SafetensorsEntry& entry) {
  if (!value.is_array()) return tensor_error(entry.name, "shape is not an array of integers >= 0");
  for (const bj::value& dimension : value.get_array()) {
    const std::optional<uint64_t> size = as_count(dimension);
    if (!size) {
      return tensor_error(entry.name,
                          absl::StrCat("shape holds ", to_json(dimension), ", not an integer >= 0"));
    }
    entry.shape.push_back(static_cast<int64_t>(*size));
  }
  return absl::OkStatus();
}

Status read_offsets(const bj::value& value, uint64_t data_bytes, SafetensorsEntry& entry) {
  const bj::array* pair = value.if_array();
  if (pair == nullptr || pair->size() != 2 || !as_count((*pair)[0]) || !as_count((*pair)[1])) {
    return tensor_error(entry.name, "data_offsets is not a pair of integers >= 0");
  }
  entry.begin = *as_count((*pair)[0]);
  entry.end = *as_count((*pair)[1]);
  if (entry.begin > entry.end) {
    return tensor_error(entry.name, absl::StrCat("offsets ", range_text(entry), " end before they begin"));
  }
  if (entry.end > data_bytes) {
    return tensor_error(entry.name, absl::StrCat("offsets ", range_text(entry), " reach beyond the file's ",
                                                 data_bytes, " bytes of data (truncated file?)"));
  }
  return absl::OkStatus();
}

Status check_size(const SafetensorsEntry& entry, uint64_t element_bytes) {
  uint64_t bytes = element_bytes;
  for (const int64_t dimension : entry.shape) {
    if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(dimension), &bytes)) {
      return tensor_error(entry.name, "the product of its shape overflows 64 bits");
    }
  }
  if (bytes != entry.end - entry.begin) {
    return tensor_error(entry.name,
                        absl::StrCat("offsets ", range_text(entry), " hold ", entry.end - entry.begin,
                                     " bytes, but its shape and dtype ", entry.dtype, " need ", bytes));
  }
  return absl::OkStatus();
}

StatusOr<SafetensorsEntry> read_entry(std::string_view name, const bj::value& value, uint64_t data_bytes) {
  SafetensorsEntry entry{std::string(name), {}, {}, 0, 0};
  const bj::object* object = value.if_object();
  if (object == nullptr) return tensor_error(name, "is not an object with dtype, shape and data_offsets");
  for (const auto& [key, unused] : *object) {
    if (key != "dtype" && key != "shape" && key != "data_offsets") {
      return tensor_error(name, absl::StrCat("unknown key '", absl::string_view(key.data(), key.size()),
                                             "'; only dtype, shape, data_offsets"));
    }
  }
  const bj::value* dtype = object->if_contains("dtype");
  const bj::value* shape = object->if_contains("shape");
  const bj::value* offsets = object->if_contains("data_offsets");
  if (dtype == nullptr || shape == nullptr || offsets == nullptr) {
    return tensor_error(name, absl::StrCat("key '",
                                           dtype == nullptr   ? "dtype"
                                           : shape == nullptr ? "shape"
                                                              : "data_offsets",
                                           "' is missing"));
  }
  if (!dtype->is_string()) return tensor_error(name, "dtype is not a string");
  entry.dtype = view(dtype->get_string());
  const std::optional<uint64_t> element_bytes = dtype_bytes(entry.dtype);
  if (!element_bytes) {
    return tensor_error(name, absl::StrCat("dtype '", entry.dtype, "' is unknown; known are ",
                                           known_dtype_names(), "; F32, BF16 and F16 are supported"));
  }
  TROUPE_RETURN_IF_ERROR(read_shape(*shape, entry));
  TROUPE_RETURN_IF_ERROR(read_offsets(*offsets, data_bytes, entry));
  TROUPE_RETURN_IF_ERROR(check_size(entry, *element_bytes));
  return entry;
}

Status check_metadata(const bj::value& value) {
  const bj::object* object = value.if_object();
  const bool good = object != nullptr && std::all_of(object->begin(), object->end(), [](const auto& pair) {
                      return pair.value().is_string();
                    });
  return good ? absl::OkStatus() : invalid_argument("__metadata__ is not an object of strings");
}

// Sorts by offset and checks that each byte of the data section belongs to one tensor; gaps could hide data.
Status check_tiling(std::vector<SafetensorsEntry>& entries, uint64_t data_bytes) {
  std::sort(entries.begin(), entries.end(), [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  uint64_t covered = 0;
  const SafetensorsEntry* previous = nullptr;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.begin < covered) {
      return tensor_error(entry.name, absl::StrCat("offsets ", range_text(entry), " overlap tensor '",
                                                   previous->name, "' at ", range_text(*previous)));
    }
    if (entry.begin > covered) {
      return tensor_error(entry.name, absl::StrCat("offsets ", range_text(entry), " leave bytes [", covered,
                                                   ", ", entry.begin, ") before it unused"));
    }
    covered = entry.end;
    previous = &entry;
  }
  if (covered != data_bytes) {
    return invalid_argument(absl::StrCat("the last ", data_bytes - covered, " of ", data_bytes,
                                         " data bytes belong to no tensor"));
  }
  return absl::OkStatus();
}

Status system_error(std::string_view path, std::string_view what) {
  return absl::NotFoundError(absl::StrCat(to_absl(path), ": ", to_absl(what), ": ", std::strerror(errno)));
}

}  // namespace

StatusOr<SafetensorsHeader> parse_safetensors(std::string_view file) {
  if (file.size() < kLengthBytes) {
    return invalid_argument(absl::StrCat("only ", file.size(),
                                         " bytes: a safetensors file begins with 8 bytes of header length"));
  }
  uint64_t header_bytes = 0;
  for (uint64_t i = 0; i < kLengthBytes; ++i) {
    header_bytes |= uint64_t{static_cast<unsigned char>(file[i])} << (8 * i);
  }
  if (header_bytes > kHeaderBytesMax || header_bytes > file.size() - kLengthBytes) {
    return invalid_argument(
        absl::StrCat("header length ", header_bytes, " is more than ",
                     std::min(kHeaderBytesMax, file.size() - kLengthBytes),
                     header_bytes > kHeaderBytesMax ? " (the most allowed)" : " (what follows in the file)"));
  }
  SafetensorsHeader header;
  header.data_start = kLengthBytes + header_bytes;
  const uint64_t data_bytes = file.size() - header.data_start;
  const std::string_view text = file.substr(kLengthBytes, header_bytes);
  if (text.empty() || text.front() != '{') return invalid_argument("header does not begin with '{'");

  StatusOr<bj::value> json =
      parse_json(text, {.bytes_max = static_cast<size_t>(kHeaderBytesMax), .depth_max = kHeaderDepthMax});
  if (!json.ok()) return annotate(json.status(), "header");
  if (!json->is_object()) return invalid_argument("header is not a JSON object");
  for (const auto& [key, value] : json->get_object()) {
    const std::string_view name(key.data(), key.size());
    if (name == "__metadata__") {
      TROUPE_RETURN_IF_ERROR(check_metadata(value));
      continue;
    }
    TROUPE_ASSIGN_OR_RETURN(SafetensorsEntry entry, read_entry(name, value, data_bytes));
    header.entries.push_back(std::move(entry));
  }
  TROUPE_RETURN_IF_ERROR(check_tiling(header.entries, data_bytes));
  return header;
}

std::optional<DType> loadable_dtype(std::string_view safetensors_dtype) {
  if (safetensors_dtype == "F32") return DType::kFloat32;
  if (safetensors_dtype == "BF16") return DType::kBFloat16;
  if (safetensors_dtype == "F16") return DType::kFloat16;
  return std::nullopt;
}

StatusOr<MappedFile> MappedFile::open(const std::string& path) {
  TROUPE_ASSIGN_OR_RETURN(const RegularFile opened, open_regular_file(path));
  const auto size = static_cast<size_t>(opened.byte_count);
  if (size == 0) return invalid_argument(absl::StrCat(path, ": is empty"));
  void* const data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, opened.file.descriptor(), 0);
  if (data == MAP_FAILED) return system_error(path, "cannot map");
  // Advice only: loading reads the file once, and soon.
  (void)::madvise(data, size, MADV_WILLNEED);
  return MappedFile(static_cast<const char*>(data), size);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<char*>(data_), size_);
}

StatusOr<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  TROUPE_ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path));
  StatusOr<SafetensorsHeader> header = parse_safetensors(file.bytes());
  if (!header.ok()) return annotate(header.status(), path);
  return SafetensorsFile{path, std::move(file), std::move(*header)};
}

std::string_view SafetensorsFile::bytes(const SafetensorsEntry& entry) const {
  return file.bytes().substr(header.data_start + entry.begin, entry.end - entry.begin);
}

}  // namespace troupe
