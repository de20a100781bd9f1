// pathways_compiler: compiles programs for the process that started it. Not meant to be started by hand.
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/strings/numbers.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "base/flags.h"
#include "base/logging.h"
#include "base/machine.h"
#include "base/status.h"
#include "compiler/child_process.h"
#include "compiler/compile_service.h"
#include "transport/transport.h"

namespace openpathways::compiler {
namespace {

// XLA's passes recurse over the program. Only what is touched becomes memory.
constexpr size_t kStackBytes = size_t{256} << 20;

// Compiles at the same time: more than there are processors, so that a short one has its share of them beside as many
// long ones instead of waiting for their ends.
constexpr int kMinCompiles = 8;

// Threads with big stacks that live as long as the process.
class CompileThreads {
 public:
  void Start(int count) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, kStackBytes);
    for (int i = 0; i < count; ++i) {
      pthread_t thread;
      auto run = +[](void* self) -> void* {
        static_cast<CompileThreads*>(self)->Run();
        return nullptr;
      };
      if (pthread_create(&thread, &attributes, run, this) != 0) {
        spdlog::critical("cannot start a compile thread");
        std::_Exit(EXIT_FAILURE);
      }
      pthread_setname_np(thread, "compile");
      pthread_detach(thread);
    }
    pthread_attr_destroy(&attributes);
  }

  void Post(absl::AnyInvocable<void()> task) {
    absl::MutexLock lock(&mu_);
    tasks_.push_back(std::move(task));
  }

 private:
  void Run() {
    while (true) {
      absl::AnyInvocable<void()> task;
      {
        absl::MutexLock lock(&mu_);
        mu_.Await(absl::Condition(
            +[](std::deque<absl::AnyInvocable<void()>>* tasks) { return !tasks->empty(); }, &tasks_));
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      task();
    }
  }

  absl::Mutex mu_;
  std::deque<absl::AnyInvocable<void()>> tasks_ ABSL_GUARDED_BY(mu_);
};

class Server {
 public:
  Server(CompileService* service, transport::Transport* transport) : service_(service), transport_(transport) {
    threads_.Start(std::max(kMinCompiles, 2 * AvailableCpus()));
    layout_thread_.Start(1);
  }

  // Serves until the parent goes, then ends the process at once: running compiles are of no use to anybody.
  [[noreturn]] void Run() {
    absl::Notification connected;
    transport::ConnectionCallbacks callbacks;
    callbacks.on_message = [this, &connected](transport::Message message) {
      connected.WaitForNotification();
      OnMessage(std::move(message));
    };
    callbacks.on_closed = [](absl::Status) { std::_Exit(EXIT_SUCCESS); };
    connection_ = transport_->Adopt(kChildSocket, std::move(callbacks));
    connected.Notify();
    while (true) pause();
  }

 private:
  void OnMessage(transport::Message message) {
    auto request = std::make_shared<Request>();
    if (!request->ParseFromString(message.header)) {
      spdlog::critical("a message that is no request");
      std::_Exit(EXIT_FAILURE);
    }
    CompileThreads& threads = request->has_default_layout() ? layout_thread_ : threads_;
    threads.Post([this, request, program = std::move(message.payload)] { Handle(*request, program); });
  }

  void Handle(const Request& request, const transport::Buffer& program) {
    Response response;
    response.set_request(request.request());
    transport::Buffer payload;
    absl::Status status = Handle(request, program, response, payload);
    if (!status.ok()) *response.mutable_status() = StatusToProto(status);
    connection_->Send(response.SerializeAsString(), std::move(payload));
  }

  absl::Status Handle(const Request& request, const transport::Buffer& program, Response& response,
                      transport::Buffer& payload) {
    switch (request.what_case()) {
      case Request::kCompile: {
        const absl::string_view text(reinterpret_cast<const char*>(program.data()), program.size());
        ASSIGN_OR_RETURN(CompiledProgram compiled, service_->Compile(text, request.compile().compile_options()));
        ASSIGN_OR_RETURN(payload, transport_->arena().Allocate(compiled.serialized_executable.size()));
        std::memcpy(payload.data(), compiled.serialized_executable.data(), payload.size());
        *response.mutable_compiled() = std::move(compiled.program);
        return absl::OkStatus();
      }
      case Request::kDefaultLayout: {
        const DefaultLayout& what = request.default_layout();
        ASSIGN_OR_RETURN(
            *response.mutable_default_layout(),
            service_->DefaultLayout(what.element_type(), absl::MakeConstSpan(what.dims().data(), what.dims_size())));
        return absl::OkStatus();
      }
      case Request::kProgramText: {
        const absl::string_view bytes(reinterpret_cast<const char*>(program.data()), program.size());
        ASSIGN_OR_RETURN(const std::string text,
                         service_->ProgramText(bytes, request.program_text().compile_options()));
        ASSIGN_OR_RETURN(payload, transport_->arena().Allocate(text.size()));
        std::memcpy(payload.data(), text.data(), text.size());
        response.mutable_program_text();
        return absl::OkStatus();
      }
      case Request::WHAT_NOT_SET:
        break;
    }
    return absl::UnimplementedError("a request of a kind that this compiler does not know");
  }

  CompileService* const service_;
  transport::Transport* const transport_;
  CompileThreads threads_;
  CompileThreads layout_thread_;  // layouts are asked for by calls that somebody waits in, and are soon found
  transport::ConnectionRef connection_;
};

int Main(int argc, char** argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  InitLogging(argc, argv);
  std::string plugin;
  FlagSet flags;
  flags.Add("plugin", &plugin, "path of the PJRT plugin");
  bool check_only = false;
  flags.Add("check_only", &check_only, "see whether the plugin takes its flags (XLA_FLAGS), then end");
  if (absl::Status status = flags.Parse(argc, argv); !status.ok()) {
    spdlog::critical("{}", status.ToString());
    return EXIT_FAILURE;
  }
  auto service = CompileService::Create(plugin);
  if (!service.ok()) {
    spdlog::critical("the compiler cannot start: {}", service.status().ToString());
    return EXIT_FAILURE;
  }
  if (check_only) {
    constexpr int kF32 = 11;  // any type will do: asking for its layout makes a client
    const absl::Status made = (*service)->DefaultLayout(kF32, {1}).status();
    if (!made.ok()) spdlog::critical("the compiler cannot start: {}", made.ToString());
    return made.ok() ? EXIT_SUCCESS : EXIT_FAILURE;
  }
  auto transport = transport::Transport::Create();
  if (!transport.ok()) {
    spdlog::critical("the compiler cannot start: {}", transport.status().ToString());
    return EXIT_FAILURE;
  }
  Server server(service->get(), transport->get());
  server.Run();
}

}  // namespace
}  // namespace openpathways::compiler

int main(int argc, char** argv) { return openpathways::compiler::Main(argc, argv); }
