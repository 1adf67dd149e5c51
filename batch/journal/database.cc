// SPDX-License-Identifier: BSD-3-Clause
#include "batch/journal/database.h"

#include <sqlite3.h>

namespace isopool::batch {

namespace {

/// How long another program that reads the file, as `isopool batch report`, may hold it.
constexpr int kBusyMilliseconds = 30'000;

}  // namespace

void Database::Close::operator()(sqlite3* database) const { sqlite3_close(database); }
void Statement::Finalize::operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }

Database::Database(const std::string& path, int flags) : path_(path) {
  sqlite3* database = nullptr;
  const int result = sqlite3_open_v2(path.c_str(), &database, flags, nullptr);
  database_.reset(database);
  if (result != SQLITE_OK) fail("can't be opened");
  sqlite3_busy_timeout(database, kBusyMilliseconds);
}

Database::Database(const std::string& path)
    : Database(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE) {
  // EXTRA also syncs the folder after the rollback journal was removed: without that, a loss of
  // power could undo a transaction that has returned.
  execute("PRAGMA journal_mode=DELETE; PRAGMA synchronous=EXTRA;");
}

Database Database::existing(const std::string& path) {
  return Database(path, SQLITE_OPEN_READWRITE);
}

void Database::execute(const char* sql) {
  if (sqlite3_exec(get(), sql, nullptr, nullptr, nullptr) != SQLITE_OK) fail("refused a statement");
}

void Database::fail(const char* what) const {
  const int code = database_ == nullptr ? SQLITE_NOMEM : sqlite3_errcode(get());
  const std::string reason = database_ == nullptr ? "no memory" : sqlite3_errmsg(get());
  throw DatabaseError(path_ + " " + what + ": " + reason, code == SQLITE_FULL);
}

Statement::Statement(Database& database, std::string_view sql) : database_(database) {
  sqlite3_stmt* statement = nullptr;
  check(sqlite3_prepare_v2(database.get(), sql.data(), static_cast<int>(sql.size()), &statement,
                           nullptr));
  statement_.reset(statement);
}

Statement& Statement::check(int result) {
  if (result != SQLITE_OK) database_.fail("refused a statement");
  return *this;
}

Statement& Statement::bind(std::string_view text) {
  return check(sqlite3_bind_text64(statement_.get(), ++bound_, text.data(), text.size(),
                                   SQLITE_TRANSIENT, SQLITE_UTF8));
}

Statement& Statement::bind(int64_t number) {
  return check(sqlite3_bind_int64(statement_.get(), ++bound_, number));
}

Statement& Statement::bind(double number) {
  return check(sqlite3_bind_double(statement_.get(), ++bound_, number));
}

bool Statement::step() {
  const int result = sqlite3_step(statement_.get());
  if (result == SQLITE_ROW) return true;
  bound_ = 0;
  sqlite3_reset(statement_.get());
  if (result != SQLITE_DONE) database_.fail("refused a change");
  return false;
}

void Statement::run() {
  while (step()) {
  }
}

std::string Statement::text(int column) const {
  const auto* const bytes =
      reinterpret_cast<const char*>(sqlite3_column_text(statement_.get(), column));
  return bytes == nullptr
             ? std::string()
             : std::string(bytes,
                           static_cast<size_t>(sqlite3_column_bytes(statement_.get(), column)));
}

int64_t Statement::number(int column) const {
  return sqlite3_column_int64(statement_.get(), column);
}

Transaction::Transaction(Database& database) : database_(database) {
  database_.execute("BEGIN IMMEDIATE");
}

Transaction::~Transaction() {
  // SQLite undoes it itself after some errors; a second ROLLBACK is then refused without an effect.
  if (!committed_) sqlite3_exec(database_.get(), "ROLLBACK", nullptr, nullptr, nullptr);
}

void Transaction::commit() {
  database_.execute("COMMIT");
  committed_ = true;
}

}  // namespace isopool::batch
