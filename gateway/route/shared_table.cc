#include "gateway/route/shared_table.h"

namespace troupe::route {

void SharedTable::look_again(int64_t revision) {
  if (revision < leader_at_) leader_at_ = 0;
  if (revision < table_at_) table_at_ = 0;
}

void SharedTable::leader_is(std::string_view name, int64_t created, int64_t revision) {
  if (revision <= leader_at_) return;
  leader_at_ = revision;
  leader_ = name;
  created_ = created;
}

bool SharedTable::table_is(int64_t modified, int64_t revision) {
  if (revision <= table_at_) return false;
  table_at_ = revision;
  const bool another = modified != modified_;
  modified_ = modified;
  return another && modified > 0;
}

}  // namespace troupe::route
