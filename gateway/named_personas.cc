#include "gateway/named_personas.h"

namespace troupe {

NamedPersonas::NamedPersonas(const PersonaSettings& settings, const Parts& parts)
    : parts_(parts), dir_(settings.dir), registry_(settings) {
  if (settings.file.empty()) return;
  const PersonaFile::Parts file{parts.executor, registry_, parts.log};
  file_ = std::make_unique<PersonaFile>(settings.file, file);
}

PersonaKeeper& NamedPersonas::keeper() {
  if (store_ != nullptr) return *store_;
  if (file_ != nullptr) return *file_;
  return memory_;
}

void NamedPersonas::share(const EtcdOptions& etcd, const std::string& prefix) {
  const PersonaStore::Parts store{parts_.executor, registry_, parts_.metrics, parts_.clock, parts_.log};
  store_ = std::make_unique<PersonaStore>(etcd, prefix, store);
}

Status NamedPersonas::load(const OwnerOfTenant& owner_of) {
  if (!dir_.empty()) {
    TROUPE_ASSIGN_OR_RETURN(const size_t count, read_persona_folder(dir_, owner_of, registry_));
    parts_.log.info("personas_read", {{"dir", dir_}, {"personas", count}});
  }
  return file_ == nullptr ? absl::OkStatus() : file_->load();
}

void NamedPersonas::start(TaskGroup& group) {
  if (store_ != nullptr) store_->start(group);
}

}  // namespace troupe
