#include "compiler/compiler.h"

#include <signal.h>

#include <cstring>
#include <functional>
#include <map>
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
#include "compiler/program_cache.h"
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

  ~CompilerProcess() {
    {
      absl::MutexLock lock(&mu_);
      stopping_ = true;
      if (pid_ != 0) kill(pid_, SIGKILL);
    }
    keeper_.join();
    FailAll(absl::CancelledError("the compiler was stopped"));
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
    absl::MutexLock lock(&mu_);
    const uint64_t number = next_request_++;
    request.set_request(number);
    Pending& pending = pending_[number];
    pending.header = request.SerializeAsString();
    pending.payload = std::move(payload);
    pending.callback = std::move(callback);
    if (connection_ != nullptr) SendTo(pending);
  }

 private:
  struct Pending {
    std::string header;
    transport::Buffer payload;
    Callback callback;
    bool sent = false;  // to the process that runs now
  };

  // The transport neither blocks nor calls back in Send, so this is harmless under the lock and keeps the order simple.
  void SendTo(Pending& pending) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    connection_->Send(pending.header, std::move(pending.payload));
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
      for (auto& [number, pending] : pending_) SendTo(pending);
    }
    AwaitChild(child.pid);
    // What it had still to say comes before the end of the stream.
    connection_closed.Await();
    OnProcessEnded(child.pid);
    return absl::OkStatus();
  }

  void OnProcessEnded(pid_t pid) {
    std::vector<Callback> failed;
    bool expected;
    {
      absl::MutexLock lock(&mu_);
      pid_ = 0;
      connection_ = nullptr;
      expected = stopping_;
      for (auto it = pending_.begin(); it != pending_.end();) {
        auto entry = it++;
        if (!entry->second.sent) continue;
        failed.push_back(std::move(entry->second.callback));
        pending_.erase(entry);
      }
    }
    const std::string how = ReapChild(pid);
    if (!expected) spdlog::error("the compiler process has ended with {}; it is started again when needed", how);
    for (Callback& callback : failed) {
      callback(absl::AbortedError(absl::StrCat("the compiler process ended with ", how, " while it was compiling")),
               transport::Buffer());
    }
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
      : cache_(options.cache_bytes), process_(options, std::move(transport)) {}

  Future<CompiledProgramRef> Compile(std::string program, std::string compile_options) override {
    auto normalized = NormalizeCompileOptions(compile_options);
    if (!normalized.ok()) return Future<CompiledProgramRef>(normalized.status());
    std::string key = absl::StrCat(normalized->size(), ":", *normalized, program);
    if (CompiledProgramRef cached = cache_.Find(key)) return Future<CompiledProgramRef>(std::move(cached));

    auto promise = std::make_shared<Promise<CompiledProgramRef>>();
    {
      absl::MutexLock lock(&mu_);
      auto [entry, is_new] = running_.try_emplace(key, promise);
      if (!is_new) return entry->second->future();
    }
    Request request;
    request.mutable_compile()->set_compile_options(*std::move(normalized));
    process_.Call(std::move(request), program,
                  [this, key = std::move(key), promise](absl::StatusOr<Response> response, transport::Buffer payload) {
                    OnCompiled(key, *promise, std::move(response), payload);
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
  void OnCompiled(const std::string& key, Promise<CompiledProgramRef>& promise, absl::StatusOr<Response> response,
                  const transport::Buffer& payload) {
    absl::StatusOr<CompiledProgramRef> result;
    if (!response.ok()) {
      result = response.status();
    } else {
      auto compiled = std::make_shared<CompiledProgram>();
      compiled->program = std::move(*response->mutable_compiled());
      compiled->serialized_executable.assign(reinterpret_cast<const char*>(payload.data()), payload.size());
      cache_.Insert(key, compiled);
      result = std::move(compiled);
    }
    {
      absl::MutexLock lock(&mu_);
      running_.erase(key);
    }
    promise.Set(std::move(result));
  }

  ProgramCache cache_;
  absl::Mutex mu_;
  absl::flat_hash_map<std::string, std::shared_ptr<Promise<CompiledProgramRef>>> running_ ABSL_GUARDED_BY(mu_);
  CompilerProcess process_;  // destroyed first: it fails what is running
};

}  // namespace

absl::StatusOr<std::unique_ptr<Compiler>> Compiler::Create(Options options) {
  ASSIGN_OR_RETURN(std::unique_ptr<transport::Transport> transport, transport::Transport::Create());
  return std::make_unique<CompilerImpl>(options, std::move(transport));
}

}  // namespace openpathways::compiler
