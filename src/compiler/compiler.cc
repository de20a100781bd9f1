#include "compiler/compiler.h"

#include <signal.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/logging.h"
#include "base/status.h"
#include "compiler/child_process.h"
#include "compiler/compile_options.h"
#include "compiler/digest.h"
#include "compiler/program_cache.h"
#include "compiler/program_store.h"
#include "transport/transport.h"

namespace openpathways::compiler {
namespace {

// The compiler process and the requests that it has to answer. A keeper thread starts the process, waits for its end,
// and starts it again as soon as there is something to do for it. Thread-safe.
class CompilerProcess {
 public:
  using Callback = absl::AnyInvocable<void(absl::StatusOr<Response>, transport::Buffer)>;

  CompilerProcess(Compiler::Options options, std::unique_ptr<transport::Transport> transport)
      : options_(std::move(options)), transport_(std::move(transport)), keeper_([this] { Keep(); }) {}

  ~CompilerProcess() { Stop(); }

  // Ends the process. What it should have answered fails, and so does everything from now on.
  void Stop() {
    {
      absl::MutexLock lock(&mu_);
      stopping_ = true;
      if (pid_ != 0) kill(pid_, SIGKILL);
    }
    if (keeper_.joinable()) keeper_.join();
    FailAll(Stopped());
  }

  pid_t pid() const {
    absl::MutexLock lock(&mu_);
    return pid_;
  }

  // `callback` runs once, on any thread, with the response or with the reason why there is none.
  void Call(Request request, const std::string& program, Callback callback) {
    transport::Buffer payload;
    if (!program.empty()) {
      absl::StatusOr<transport::Buffer> memory = transport_->arena().Allocate(program.size());
      if (!memory.ok()) return callback(memory.status(), transport::Buffer());
      payload = *std::move(memory);
      std::memcpy(payload.data(), program.data(), program.size());
    }
    absl::ReleasableMutexLock lock(&mu_);
    if (stopping_) {
      lock.Release();
      return callback(Stopped(), transport::Buffer());
    }
    const uint64_t number = next_request_++;
    request.set_request(number);
    Pending& pending = pending_[number];
    pending.header = request.SerializeAsString();
    pending.payload = std::move(payload);
    pending.callback = std::move(callback);
    SendWaiting();
  }

 private:
  struct Pending {
    std::string header;
    transport::Buffer payload;
    Callback callback;
    bool sent = false;     // to the process that runs now
    bool suspect = false;  // one of several that an earlier process was busy with when it ended
  };

  static absl::Status Stopped() { return absl::CancelledError("the compiler was stopped"); }

  // Suspects go one by one, before all others: the one that ends the process when it is alone has done it. The
  // transport neither blocks nor calls back in Send, so this is harmless under the lock and keeps the order simple.
  void SendWaiting() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (connection_ == nullptr) return;
    for (auto& [number, pending] : pending_) {
      if (!pending.suspect) continue;
      if (!pending.sent) SendTo(pending);
      return;
    }
    for (auto& [number, pending] : pending_) {
      if (!pending.sent) SendTo(pending);
    }
  }

  void SendTo(Pending& pending) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    connection_->Send(pending.header, pending.payload);  // kept: it may have to be sent again
    pending.sent = true;
  }

  void Keep() {
    bool first = true;
    while (AwaitWork(first)) {
      first = false;
      absl::Status status = RunProcess();
      if (!status.ok()) FailAll(status);  // it could not even be started
    }
  }

  // False when this object is being destroyed.
  bool AwaitWork(bool at_once) {
    absl::MutexLock lock(&mu_);
    auto work = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return stopping_ || !pending_.empty(); };
    if (!at_once) mu_.Await(absl::Condition(&work));
    return !stopping_;
  }

  // One life of the process.
  absl::Status RunProcess() {
    ASSIGN_OR_RETURN(const Child child, SpawnChild(options_.binary, {"--plugin=" + options_.plugin}));
    auto closed = std::make_shared<Promise<>>();
    Future<> connection_closed = closed->future();
    transport::ConnectionCallbacks callbacks;
    callbacks.on_message = [this](transport::Message message) { OnMessage(std::move(message)); };
    callbacks.on_closed = [closed](absl::Status) { closed->Set(absl::OkStatus()); };
    transport::ConnectionRef connection = transport_->Adopt(child.socket, std::move(callbacks));
    {
      absl::MutexLock lock(&mu_);
      pid_ = child.pid;
      if (stopping_) kill(pid_, SIGKILL);
      connection_ = connection;
      SendWaiting();
    }
    AwaitChild(child.pid);
    // What it had still to say comes before the end of the stream.
    connection_closed.Await();
    OnProcessEnded(child.pid);
    return absl::OkStatus();
  }

  void OnProcessEnded(pid_t pid) {
    std::vector<uint64_t> running;
    Callback failed;
    bool expected;
    {
      absl::MutexLock lock(&mu_);
      pid_ = 0;
      connection_ = nullptr;
      expected = stopping_;
      for (auto& [number, pending] : pending_) {
        if (std::exchange(pending.sent, false)) running.push_back(number);
      }
      if (running.size() == 1) {
        failed = std::move(pending_[running[0]].callback);
        pending_.erase(running[0]);
      }
      for (uint64_t number : running) {
        if (running.size() > 1) pending_[number].suspect = true;
      }
    }
    const std::string how = ReapChild(pid);
    if (!expected) {
      spdlog::error("the compiler process has ended with {} while it was busy with {} programs{}", how, running.size(),
                    running.size() > 1 ? "; they are compiled one by one, to find the one that it cannot bear" : "");
    }
    if (failed == nullptr) return;
    failed(absl::AbortedError(
               absl::StrCat("the compiler process ended with ", how, " while it was compiling this program")),
           transport::Buffer());
  }

  void OnMessage(transport::Message message) {
    Response response;
    if (!response.ParseFromString(message.header)) {
      spdlog::error("the compiler process sent a message that is no response");
      return;
    }
    Callback callback;
    {
      absl::MutexLock lock(&mu_);
      auto it = pending_.find(response.request());
      if (it == pending_.end()) return;
      callback = std::move(it->second.callback);
      pending_.erase(it);
      SendWaiting();
    }
    absl::Status status = StatusFromProto(response.status());
    if (!status.ok()) return callback(status, transport::Buffer());
    callback(std::move(response), std::move(message.payload));
  }

  void FailAll(const absl::Status& status) {
    std::map<uint64_t, Pending> failed;
    {
      absl::MutexLock lock(&mu_);
      failed.swap(pending_);
    }
    for (auto& [number, pending] : failed) pending.callback(status, transport::Buffer());
  }

  const Compiler::Options options_;
  const std::unique_ptr<transport::Transport> transport_;
  mutable absl::Mutex mu_;
  uint64_t next_request_ ABSL_GUARDED_BY(mu_) = 1;
  std::map<uint64_t, Pending> pending_ ABSL_GUARDED_BY(mu_);
  transport::ConnectionRef connection_ ABSL_GUARDED_BY(mu_);
  pid_t pid_ ABSL_GUARDED_BY(mu_) = 0;  // not reaped yet
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread keeper_;
};

class CompilerImpl final : public Compiler {
 public:
  CompilerImpl(const Options& options, std::unique_ptr<transport::Transport> transport)
      : cache_(options.cache_bytes), process_(options, std::move(transport)) {
    if (options.cache_directory.empty()) return;
    store_ = std::make_unique<ProgramStore>(ProgramStore::Options{.directory = options.cache_directory,
                                                                  .max_bytes = options.cache_directory_bytes,
                                                                  .compiler_binary = options.binary,
                                                                  .plugin = options.plugin});
  }

  ~CompilerImpl() override {
    // What is still looked for in the store would be compiled next, and what was compiled would be stored.
    process_.Stop();
    store_.reset();
  }

  Future<CompiledProgramRef> Compile(std::string program, std::string compile_options) override {
    auto normalized = NormalizeCompileOptions(compile_options);
    if (!normalized.ok()) return Future<CompiledProgramRef>(normalized.status());
    std::string key = Digest().Add(*normalized).Add(program).Finish();
    if (CompiledProgramRef cached = cache_.Find(key)) return Future<CompiledProgramRef>(std::move(cached));

    auto job = std::make_shared<Job>();
    {
      absl::MutexLock lock(&mu_);
      auto [entry, is_new] = running_.try_emplace(key, job);
      if (!is_new) return entry->second->promise.future();
    }
    job->key = std::move(key);
    job->source = std::make_shared<const std::string>(std::move(program));
    job->compile_options = *std::move(normalized);
    Future<CompiledProgramRef> future = job->promise.future();
    if (store_ == nullptr) {
      Start(job);
    } else {
      store_->Find(job->key, [this, job](std::optional<StoredProgram> stored) {
        if (!stored.has_value()) return Start(job);
        Finish(*job, MakeProgram(*job, std::move(*stored->mutable_program()),
                                 std::move(*stored->mutable_serialized_executable())));
      });
    }
    return future;
  }

  Future<std::string> ProgramText(const CompiledProgram& program) override {
    if (program.source == nullptr) return Future<std::string>(absl::NotFoundError("the program was not kept"));
    Request request;
    request.mutable_program_text()->set_compile_options(program.compile_options);
    auto promise = std::make_shared<Promise<std::string>>();
    process_.Call(std::move(request), *program.source,
                  [promise](absl::StatusOr<Response> response, transport::Buffer text) {
                    if (!response.ok()) return promise->Set(response.status());
                    promise->Set(std::string(reinterpret_cast<const char*>(text.data()), text.size()));
                  });
    return promise->future();
  }

  Future<Layout> DefaultLayout(int element_type, std::vector<int64_t> dims) override {
    Request request;
    request.mutable_default_layout()->set_element_type(element_type);
    request.mutable_default_layout()->mutable_dims()->Assign(dims.begin(), dims.end());
    auto promise = std::make_shared<Promise<Layout>>();
    process_.Call(std::move(request), "", [promise](absl::StatusOr<Response> response, transport::Buffer) {
      promise->Set(response.ok() ? absl::StatusOr<Layout>(response->default_layout()) : response.status());
    });
    return promise->future();
  }

  int child_pid() const override { return process_.pid(); }

 private:
  // A program that is being looked for or compiled, for all who want it.
  struct Job {
    std::string key;
    std::shared_ptr<const std::string> source;
    std::string compile_options;
    std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
    Promise<CompiledProgramRef> promise;
  };
  using JobRef = std::shared_ptr<Job>;

  static CompiledProgramRef MakeProgram(const Job& job, Program program, std::string serialized_executable) {
    auto compiled = std::make_shared<CompiledProgram>();
    compiled->program = std::move(program);
    compiled->serialized_executable = std::move(serialized_executable);
    compiled->source = job.source;
    compiled->compile_options = job.compile_options;
    return compiled;
  }

  void Start(const JobRef& job) {
    Request request;
    request.mutable_compile()->set_compile_options(job->compile_options);
    process_.Call(std::move(request), *job->source,
                  [this, job](absl::StatusOr<Response> response, transport::Buffer payload) {
                    OnCompiled(*job, std::move(response), payload);
                  });
  }

  void OnCompiled(Job& job, absl::StatusOr<Response> response, const transport::Buffer& payload) {
    if (!response.ok()) return Finish(job, response.status());
    CompiledProgramRef compiled =
        MakeProgram(job, std::move(*response->mutable_compiled()),
                    std::string(reinterpret_cast<const char*>(payload.data()), payload.size()));
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - job.begin;
    spdlog::info("compiled {} for {} devices in {:.3f} s", compiled->program.name(),
                 compiled->program.num_replicas() * compiled->program.num_partitions(), seconds.count());
    if (store_ != nullptr) store_->Insert(job.key, compiled);
    Finish(job, std::move(compiled));
  }

  void Finish(Job& job, absl::StatusOr<CompiledProgramRef> result) {
    if (result.ok()) cache_.Insert(job.key, *result);
    {
      absl::MutexLock lock(&mu_);
      running_.erase(job.key);
    }
    job.promise.Set(std::move(result));
  }

  ProgramCache cache_;
  absl::Mutex mu_;
  absl::flat_hash_map<std::string, JobRef> running_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<ProgramStore> store_;  // null: there is none
  CompilerProcess process_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Compiler>> Compiler::Create(Options options) {
  ASSIGN_OR_RETURN(std::unique_ptr<transport::Transport> transport, transport::Transport::Create());
  return std::make_unique<CompilerImpl>(options, std::move(transport));
}

}  // namespace openpathways::compiler
