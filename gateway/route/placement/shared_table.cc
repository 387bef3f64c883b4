#include "gateway/route/placement/shared_table.h"

namespace troupe::route {

bool SharedTable::begun_anew(int64_t revision, int64_t asked) {
  if (revision >= asked) return false;
  leader_at_ = table_at_ = 0;
  return true;
}

void SharedTable::leader_is(std::string_view name, int64_t created, int64_t revision) {
  if (revision <= leader_at_) return;
  leader_at_ = revision;
  leader_ = name;
  created_ = created;
}

bool SharedTable::table_is(int64_t created, int64_t modified, int64_t revision) {
  if (revision <= table_at_) return false;
  table_at_ = revision;
  table_created_ = created;
  modified_ = modified;
  return modified > 0;
}

}  // namespace troupe::route
