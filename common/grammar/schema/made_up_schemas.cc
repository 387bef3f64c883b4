#include "common/grammar/schema/made_up_schemas.h"

#include "common/grammar/schema/negate.h"

namespace troupe::grammar {

const bj::value* MadeUpSchemas::make_up(bj::value value, const bj::value* at) {
  made_up_.push_back(std::move(value));
  index_.add_path(&made_up_.back(), index_.path(at));
  return &made_up_.back();
}

const bj::value* MadeUpSchemas::target_of(const bj::value* schema) const {
  for (int hops = 0; schema != nullptr && hops < 32; ++hops) {
    const bj::object* object = schema->if_object();
    const bj::value* ref = object != nullptr && object->size() == 1 ? object->if_contains("$ref") : nullptr;
    if (ref == nullptr || !ref->is_string()) return schema;
    schema = index_.resolve(schema, view(ref->as_string()));
  }
  return nullptr;
}

const MadeUpSchemas::Alternatives& MadeUpSchemas::conditional(const bj::value* condition,
                                                              const bj::value* then,
                                                              const bj::value* otherwise) {
  auto& made = spelled_out_[condition];
  if (made != nullptr) return *made;
  bj::array met{reference(condition)}, unmet{bj::object{{"not", reference(condition)}}};
  if (then != nullptr) met.push_back(reference(then));
  if (otherwise != nullptr) unmet.push_back(reference(otherwise));
  made = std::make_unique<Alternatives>();
  made->keyword = condition;
  for (bj::array* schemas : {&met, &unmet})
    made->schemas.push_back(make_up(bj::object{{"allOf", std::move(*schemas)}}, condition));
  return *made;
}

const MadeUpSchemas::Alternatives& MadeUpSchemas::dependency(bj::string_view name, const bj::value* needs) {
  auto& made = spelled_out_[needs];
  if (made != nullptr) return *made;
  bj::array required{bj::string(name)};
  bj::object present;
  if (needs->is_array()) {
    required.insert(required.end(), needs->as_array().begin(), needs->as_array().end());
  } else {
    present["allOf"] = bj::array{reference(needs)};
  }
  present["required"] = std::move(required);
  made = std::make_unique<Alternatives>();
  made->keyword = needs;
  made->schemas = {make_up(bj::object{{"properties", bj::object{{name, false}}}}, needs),
                   make_up(std::move(present), needs)};
  return *made;
}

StatusOr<const MadeUpSchemas::Alternatives*> MadeUpSchemas::negation_of(
    const bj::value* schema, const std::vector<std::string_view>& names) {
  if (const auto known = negations_.find(schema); known != negations_.end()) return known->second.get();
  auto negation = std::make_unique<Alternatives>();
  negation->keyword = make_up(nullptr, schema);
  if (schema->is_object()) {
    const auto refer = [&](const bj::value& part) {
      const bj::value* target = part.is_string() ? index_.resolve(schema, view(part.as_string())) : &part;
      return target == nullptr ? std::string() : index_.reference_to(target);
    };
    TROUPE_ASSIGN_OR_RETURN(std::vector<bj::value> alternatives,
                            alternatives_of_not(schema->as_object(), refer, names));
    for (bj::value& one : alternatives) negation->schemas.push_back(make_up(std::move(one), schema));
  }
  return (negations_[schema] = std::move(negation)).get();
}

StatusOr<const bj::value*> MadeUpSchemas::not_of(const bj::value* schema,
                                                 const std::vector<std::string_view>& names) {
  const bj::value* target = target_of(schema);
  if (target == nullptr) return invalid_argument("its $ref is not in this document");
  if (!target->is_object() || !negates_directly(target->as_object()))
    TROUPE_RETURN_IF_ERROR(negation_of(target, names).status());
  auto& made = nots_[target];
  if (made == nullptr) made = make_up(bj::object{{"not", reference(target)}}, schema);
  return made;
}

}  // namespace troupe::grammar
