#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "base/status.h"
#include "cli/interrupt.h"
#include "cli/local_cluster.h"

namespace openpathways::cli {
namespace {

namespace fs = std::filesystem;

// A log file that is read bit by bit; only whole lines are printed, so that those of several files do not mix.
class LogReader {
 public:
  LogReader(std::string path, std::string prefix) : path_(std::move(path)), prefix_(std::move(prefix)) {}

  // Starts at the last `lines` lines.
  void SkipToLast(int lines) {
    std::error_code ignored;
    const auto size = static_cast<int64_t>(fs::file_size(path_, ignored));
    if (!ignored) offset_ = size - static_cast<int64_t>(TailOfFile(path_, lines).size());
  }

  void PrintNew(bool unfinished_too) {
    std::error_code missing;
    const auto size = static_cast<int64_t>(fs::file_size(path_, missing));
    if (missing) return;
    if (size < offset_) offset_ = 0;  // a new cluster began a new log
    std::ifstream file(path_, std::ios::binary);
    file.seekg(offset_);
    for (std::string line; std::getline(file, line);) {
      const bool finished = !file.eof();
      if (!finished && !unfinished_too) break;
      offset_ += static_cast<int64_t>(line.size()) + (finished ? 1 : 0);
      std::printf("%s%s\n", prefix_.c_str(), line.c_str());
    }
    std::fflush(stdout);
  }

 private:
  const std::string path_;
  const std::string prefix_;
  int64_t offset_ = 0;
};

// Whether the person's word means the log called `log` ("worker-0-1").
bool Matches(const std::string& word, const std::string& log) {
  if (word == "rm" || word == "resource-manager") return log == "resource_manager";
  if (word == "worker" || word == "workers") return absl::StartsWith(log, "worker-");
  return word == log || absl::StrCat("worker-", word) == log;
}

absl::StatusOr<std::vector<std::string>> ChooseLogs(const std::string& folder, std::vector<std::string> words) {
  std::vector<std::string> all;
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, none)) {
    if (entry.path().extension() == ".log") all.push_back(entry.path().stem());
  }
  if (all.empty()) return absl::NotFoundError(absl::StrCat("there are no logs in ", folder));
  std::sort(all.begin(), all.end());
  // "worker 0-1" means one log, not two.
  if (words.size() == 2 && words[0] == "worker") words = {absl::StrCat("worker-", words[1])};
  if (words.empty()) return all;
  std::vector<std::string> chosen;
  for (const std::string& word : words) {
    bool found = false;
    for (const std::string& log : all) {
      if (!Matches(word, log)) continue;
      found = true;
      chosen.push_back(log);
    }
    if (!found) {
      return absl::NotFoundError(absl::StrCat("no log is called '", word, "'; there are ", absl::StrJoin(all, ", ")));
    }
  }
  return chosen;
}

}  // namespace

absl::Status LocalCluster::PrintLogs(const LogsRequest& request) {
  RETURN_IF_ERROR(StateDirectory::CheckName(request.workload));
  const std::string folder = directory_.cluster_directory(request.workload) + "/logs";
  ASSIGN_OR_RETURN(std::vector<std::string> names, ChooseLogs(folder, request.which));
  std::vector<LogReader> readers;
  for (const std::string& name : names) {
    readers.emplace_back(absl::StrCat(folder, "/", name, ".log"),
                         names.size() == 1 ? "" : absl::StrCat("[", name, "] "));
    if (request.lines >= 0) readers.back().SkipToLast(request.lines);
  }
  for (LogReader& reader : readers) reader.PrintNew(/*unfinished_too=*/!request.follow);
  if (!request.follow) return absl::OkStatus();
  CatchInterrupts();
  while (!Interrupted()) {
    absl::SleepFor(absl::Milliseconds(200));
    for (LogReader& reader : readers) reader.PrintNew(/*unfinished_too=*/false);
  }
  return absl::OkStatus();
}

}  // namespace openpathways::cli
