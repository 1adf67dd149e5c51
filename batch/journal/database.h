// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

struct sqlite3;
struct sqlite3_stmt;

namespace isopool::batch {

/// SQLite refused an operation. The text names the file and SQLite's reason.
class DatabaseError : public std::runtime_error {
 public:
  DatabaseError(const std::string& what, bool diskFull)
      : std::runtime_error(what), diskFull_(diskFull) {}
  /// No room for the change, which was not made.
  bool diskFull() const { return diskFull_; }

 private:
  bool diskFull_;
};

class Database;

/// One SQL statement with its values. Runs once each time that it is stepped to its end. Used by
/// one thread; must not outlive its database.
class Statement {
 public:
  /// Throws DatabaseError, as all members do.
  Statement(Database& database, std::string_view sql);

  /// The next parameter, from left to right.
  Statement& bind(std::string_view text);
  Statement& bind(int64_t number);
  Statement& bind(double number);
  /// True if there is a row. False at the end; then the statement can be bound and run again.
  bool step();
  /// For a statement without rows.
  void run();

  std::string text(int column) const;
  int64_t number(int column) const;

 private:
  Statement& check(int result);

  struct Finalize {
    void operator()(sqlite3_stmt* statement) const;
  };
  Database& database_;
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
  int bound_ = 0;
};

/// A SQLite file. Every transaction is on the disk when it returns (synchronous=FULL), with a
/// rollback journal, which also works in a folder that machines share. Not thread-safe.
class Database {
 public:
  /// Opens the file, or makes it.
  explicit Database(const std::string& path);
  /// Opens an existing file. May change it: what a run that was killed had begun is undone.
  static Database existing(const std::string& path);

  /// Runs statements without values and rows.
  void execute(const char* sql);
  const std::string& path() const { return path_; }
  sqlite3* get() const { return database_.get(); }
  [[noreturn]] void fail(const char* what) const;

 private:
  Database(const std::string& path, int flags);

  struct Close {
    void operator()(sqlite3* database) const;
  };
  std::string path_;
  std::unique_ptr<sqlite3, Close> database_;
};

/// Begins a transaction; the destructor undoes it unless commit() was called.
class Transaction {
 public:
  explicit Transaction(Database& database);
  ~Transaction();
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  void commit();

 private:
  Database& database_;
  bool committed_ = false;
};

}  // namespace isopool::batch
