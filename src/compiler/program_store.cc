#include "compiler/program_store.h"

#include <pthread.h>

#include <cstdlib>
#include <fstream>
#include <mutex>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/logging.h"
#include "base/machine.h"
#include "base/status.h"
#include "compiler/digest.h"

namespace openpathways::compiler {
namespace {

// The make of this machine's processors, which code is made for.
std::string Processor() {
  static const auto* const wanted = new std::set<std::string, std::less<>>{
      "vendor_id", "cpu family", "model", "stepping", "flags", "Features", "CPU implementer", "CPU part"};
  std::ifstream file("/proc/cpuinfo");
  std::string text, line;
  while (std::getline(file, line) && !line.empty()) {  // of the first one
    const std::pair<std::string, std::string> field = absl::StrSplit(line, absl::MaxSplits(':', 1));
    if (wanted->contains(absl::StripAsciiWhitespace(field.first))) absl::StrAppend(&text, line, "\n");
  }
  return text;
}

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

absl::StatusOr<std::string> Identity(const ProgramStore::Options& options) {
  ASSIGN_OR_RETURN(const std::string compiler, BinaryDigest(options.compiler_binary));
  ASSIGN_OR_RETURN(const std::string plugin, BinaryDigest(options.plugin));
  return Digest()
      .Add(compiler)
      .Add(plugin)
      .Add(Environment("XLA_FLAGS"))
      .Add(Processor())
      .Add(absl::StrCat(AvailableCpus()))  // loops are divided among them
      .Finish();
}

}  // namespace

TaskThread::TaskThread(const char* name) : thread_([this] { Run(); }) {
  pthread_setname_np(thread_.native_handle(), name);
}

TaskThread::~TaskThread() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  thread_.join();
}

void TaskThread::Post(absl::AnyInvocable<void()> task) {
  absl::MutexLock lock(&mu_);
  tasks_.push_back(std::move(task));
}

void TaskThread::Run() {
  auto work = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return stopping_ || !tasks_.empty(); };
  while (true) {
    absl::AnyInvocable<void()> task;
    {
      absl::MutexLock lock(&mu_);
      mu_.Await(absl::Condition(&work));
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

ProgramStore::ProgramStore(Options options)
    : options_(std::move(options)),
      directory_(options_.directory, options_.max_bytes),
      writer_("cache-writer"),
      reader_("cache-reader") {
  reader_.Post([this] {
    FullKey("");  // no compile has to wait for it
    const ProgramDirectory::Usage usage = directory_.Measure();
    spdlog::info("compile cache: {} has {} programs, {} of at most {} bytes", options_.directory, usage.programs,
                 usage.bytes, options_.max_bytes);
  });
}

std::string ProgramStore::FullKey(const std::string& key) {
  std::call_once(once_, [this] {
    absl::StatusOr<std::string> identity = Identity(options_);
    if (identity.ok()) {
      identity_ = *std::move(identity);
    } else {
      spdlog::warn("compile cache: it is not used: {}", std::string(identity.status().message()));
    }
  });
  return identity_.empty() ? "" : Digest().Add(identity_).Add(key).Finish();
}

void ProgramStore::Find(std::string key, absl::AnyInvocable<void(std::optional<StoredProgram>)> found) {
  reader_.Post([this, key = std::move(key), found = std::move(found)]() mutable {
    const std::string full_key = FullKey(key);
    std::optional<StoredProgram> program;
    if (!full_key.empty()) program = directory_.Read(full_key);
    if (program.has_value()) spdlog::info("compile cache: {} is there", program->program().name());
    found(std::move(program));
  });
}

void ProgramStore::Insert(std::string key, CompiledProgramRef program) {
  writer_.Post([this, key = std::move(key), program = std::move(program)] { Write(key, *program); });
}

void ProgramStore::Write(const std::string& key, const CompiledProgram& program) {
  StoredProgram stored;
  stored.set_key(FullKey(key));
  if (stored.key().empty()) return;
  *stored.mutable_program() = program.program;
  stored.set_serialized_executable(program.serialized_executable);
  const absl::Status status = directory_.Write(stored);
  if (absl::IsOutOfRange(status)) {
    spdlog::warn("compile cache: {}: {}", program.program.name(), std::string(status.message()));
  } else if (status.ok()) {
    if (!writable_) spdlog::info("compile cache: {} can be written again", options_.directory);
    writable_ = true;
    spdlog::info("compile cache: {} is stored", program.program.name());
  } else if (std::exchange(writable_, false)) {
    spdlog::warn("compile cache: programs are not kept beyond this process's end, until it can be written again: {}",
                 std::string(status.message()));
  }
}

}  // namespace openpathways::compiler
