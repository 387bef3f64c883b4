#pragma once

// An etcd of one member, over its HTTP gateway: transactions, leases and watches as its manual has them, and
// the faults of a test. It keeps what it is told; leases end when they are revoked or the test ends them. The
// test reads its members through Loop::call.

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/base64.h"
#include "common/json/json.h"
#include "tests/common/net/net_fixture.h"

namespace troupe::gateway_test {

class ScriptedEtcd {
 public:
  explicit ScriptedEtcd(net_test::Loop& loop)
      : server_(loop, [this](Exchange& exchange) { return handle(*this, exchange); }) {}
  Endpoint endpoint() const { return server_.endpoint(); }

  struct Kept {
    std::string value;
    int64_t created = 0, changed = 0, lease = 0;
  };
  std::map<std::string, Kept> keys;
  std::map<int64_t, int64_t> leases;  // seconds granted
  std::string cluster = "14841639068965178418";
  int64_t revision = 1;
  bool away = false;        // every call fails, no watch tells anything
  bool watch_lags = false;  // watches tell nothing, until it is unset
  int answers_lost = 0;     // so many transactions that write are done, and not answered
  int writes = 0;           // transactions that wrote

  void put(const std::string& key, const std::string& value, int64_t lease = 0) {
    Kept& kept = keys[key];
    revision += 1;
    kept = {value, kept.created == 0 ? revision : kept.created, revision, lease};
    news_.push_back({revision, key, false, kept});
  }
  void erase(const std::string& key) {
    if (keys.erase(key) == 0) return;
    revision += 1;
    news_.push_back({revision, key, true, {}});
  }
  // Another store at the same address, empty.
  void replace(const std::string& name) {
    cluster = name;
    revision = 1;
    keys.clear();
    leases.clear();
    news_.clear();
    life_ += 1;
  }

 private:
  struct News {
    int64_t revision = 0;
    std::string key;
    bool deleted = false;
    Kept kept;
  };

  static std::string text_of(const bj::object& fields, const char* name) {
    const bj::value* value = fields.if_contains(name);
    return value == nullptr ? "" : from_base64(std::string_view(value->as_string())).value();
  }
  static int64_t number_of(const bj::object& fields, const char* name) {
    const bj::value* value = fields.if_contains(name);
    return value == nullptr ? 0 : std::stoll(std::string(value->as_string()));
  }
  std::string header() const {
    return absl::StrCat(R"("header":{"cluster_id":")", cluster, R"(","revision":")", revision, "\"}");
  }
  static std::string kv_json(const std::string& key, const Kept& kept, bool keys_only) {
    std::string json = absl::StrCat(R"({"key":")", base64(key), R"(","create_revision":")", kept.created,
                                    R"(","mod_revision":")", kept.changed, "\"");
    if (kept.lease != 0) absl::StrAppend(&json, R"(,"lease":")", kept.lease, "\"");
    if (!keys_only) absl::StrAppend(&json, R"(,"value":")", base64(kept.value), "\"");
    return json + "}";
  }
  static bool is_in(const std::string& key, const bj::object& range) {
    const std::string begin = text_of(range, "key"), end = text_of(range, "range_end");
    return end.empty() ? key == begin : key >= begin && key < end;
  }
  int64_t compared(const bj::object& compare) const {
    const auto found = keys.find(text_of(compare, "key"));
    if (found == keys.end()) return 0;
    return compare.at("target").as_string() == "MOD" ? found->second.changed : found->second.created;
  }

  // Does it, and returns the answer; empty: a lease that there is not.
  std::string transact(const bj::object& asked, bool& wrote) {
    bool holds = true;
    for (const bj::value& compare : asked.at("compare").as_array()) {
      const bj::object& fields = compare.as_object();
      const char* name = fields.at("target").as_string() == "MOD" ? "mod_revision" : "create_revision";
      holds = holds && compared(fields) == number_of(fields, name);
    }
    std::string responses;
    for (const bj::value& item : asked.at(holds ? "success" : "failure").as_array()) {
      if (!responses.empty()) responses += ',';
      const bj::object& request = item.as_object();
      if (const bj::value* range = request.if_contains("request_range")) {
        responses += read(range->as_object());
      } else if (const bj::value* one = request.if_contains("request_put")) {
        const bj::object& fields = one->as_object();
        const int64_t lease = number_of(fields, "lease");
        if (lease != 0 && !leases.contains(lease)) return "";
        put(text_of(fields, "key"), text_of(fields, "value"), lease);
        wrote = true;
        responses += R"({"response_put":{}})";
      } else {
        erase(text_of(request.at("request_delete_range").as_object(), "key"));
        wrote = true;
        responses += R"({"response_delete_range":{}})";
      }
    }
    return absl::StrCat("{", header(), holds ? ",\"succeeded\":true" : "", ",\"responses\":[", responses,
                        "]}");
  }
  std::string read(const bj::object& range) const {
    std::string found;
    for (const auto& [key, kept] : keys) {
      if (!is_in(key, range)) continue;
      absl::StrAppend(&found, found.empty() ? "" : ",", kv_json(key, kept, range.contains("keys_only")));
    }
    return R"({"response_range":{"kvs":[)" + found + "]}}";
  }

  static Task<void> fail(Exchange& exchange, int status) {
    const HeaderList headers;
    co_await exchange.respond(status, headers, R"({"message":"scripted"})");
  }
  static Task<void> handle(ScriptedEtcd& etcd, Exchange& exchange) {
    const HttpRequest& request = exchange.request();
    if (etcd.away) co_return co_await fail(exchange, 503);
    const bj::value root = parse_json(request.body).value();
    const bj::object& asked = root.as_object();
    std::string answer;
    if (request.path == "/v3/watch") {
      co_return co_await watch(etcd, exchange, asked.at("create_request").as_object());
    } else if (request.path == "/v3/kv/txn") {
      bool wrote = false;
      answer = etcd.transact(asked, wrote);
      if (answer.empty()) co_return co_await fail(exchange, 404);
      if (wrote) etcd.writes += 1;
      if (wrote && etcd.answers_lost > 0) {
        etcd.answers_lost -= 1;
        co_return co_await fail(exchange, 503);
      }
    } else if (request.path == "/v3/lease/grant") {
      const int64_t id = ++etcd.last_lease_, ttl = number_of(asked, "TTL");
      etcd.leases[id] = ttl;
      answer = absl::StrCat(R"({"ID":")", id, R"(","TTL":")", ttl, "\"}");
    } else {
      const int64_t id = number_of(asked, "ID");
      if (etcd.leases.erase(id) == 0) co_return co_await fail(exchange, 404);
      std::vector<std::string> its;
      for (const auto& [key, kept] : etcd.keys) {
        if (kept.lease == id) its.push_back(key);
      }
      for (const std::string& key : its) etcd.erase(key);
      answer = "{}";
    }
    const HeaderList headers;
    co_await exchange.respond(200, headers, std::move(answer));
  }
  static Task<void> watch(ScriptedEtcd& etcd, Exchange& exchange, bj::object range) {
    const HeaderList headers;
    co_await exchange.start(200, headers);
    const std::string created = absl::StrCat(R"({"result":{"created":true,)", etcd.header(), "}}\n");
    co_await exchange.write(created);
    int64_t next = number_of(range, "start_revision");
    Timer timer(exchange.executor());
    for (const int life = etcd.life_; life == etcd.life_;) {
      std::string lines;
      for (const News& news : etcd.news_) {
        if (etcd.away || etcd.watch_lags || news.revision < next || !is_in(news.key, range)) continue;
        Kept kept = news.kept;
        kept.changed = news.revision;
        absl::StrAppend(&lines, R"({"result":{)", etcd.header(), R"(,"events":[{)",
                        news.deleted ? R"("type":"DELETE",)" : "", R"("kv":)",
                        kv_json(news.key, kept, news.deleted), "}]}}\n");
        next = news.revision + 1;
      }
      if (!lines.empty()) co_await exchange.write(lines);
      timer.expires_after(std::chrono::milliseconds(1));
      co_await timer.async_wait(use_task);
    }
    co_await exchange.finish();
  }

  std::vector<News> news_;
  int64_t last_lease_ = 1000;
  int life_ = 0;
  net_test::TestServer server_;
};

}  // namespace troupe::gateway_test
